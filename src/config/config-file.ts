import type { ConfigProblem } from './problem.ts';

/** A value that a file asks for. */
export interface Setting {
  /** The flag, without dashes. */
  readonly flag: string;
  /** What the flag would be given on a command line. */
  readonly text: string;
  /** The field that says so, such as `clientConnection.kubeconfig`. */
  readonly field: string;
  readonly line: number;
}

/** A configuration file that was understood. */
export interface ConfigFile {
  readonly path: string;
  /** By flag, without dashes. */
  readonly settings: ReadonlyMap<string, Setting>;
  /** The words of the command line that the file stands for; undefined: it names none. */
  readonly command: readonly string[] | undefined;
  /** What has no effect, and why. */
  readonly warnings: readonly ConfigProblem[];
}

/** The settings of one document. */
export interface DocumentSettings {
  readonly settings: readonly Setting[];
  readonly command: readonly string[] | undefined;
  readonly warnings: readonly ConfigProblem[];
  readonly problems: readonly ConfigProblem[];
}
