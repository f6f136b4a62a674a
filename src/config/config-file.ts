import type { ConfigProblem } from './problem.ts';

/** A value from a file. */
export interface Setting {
  /** The flag, without dashes. */
  readonly flag: string;
  /** The equivalent text on a command line. */
  readonly text: string;
  /** The field it comes from, such as `clientConnection.kubeconfig`. */
  readonly field: string;
  readonly line: number;
}

/** A parsed configuration file. */
export interface ConfigFile {
  readonly path: string;
  /** By flag, without dashes. */
  readonly settings: ReadonlyMap<string, Setting>;
  /** The words of the command line in the file; undefined: none. */
  readonly command: readonly string[] | undefined;
  /** Settings without effect, and why. */
  readonly warnings: readonly ConfigProblem[];
}
