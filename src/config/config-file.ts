import { KpngError } from '../errors.ts';

export interface Setting {
  readonly flag: string;
  /** The equivalent text on a command line. */
  readonly text: string;
  /** The field it comes from, such as `clientConnection.kubeconfig`. */
  readonly field: string;
  readonly line: number;
}

export interface ConfigFile {
  readonly path: string;
  /** By flag, without dashes. */
  readonly settings: ReadonlyMap<string, Setting>;
  /** The words of the command line in the file; undefined: none. */
  readonly command: readonly string[] | undefined;
  /** Settings without effect, and why. */
  readonly warnings: readonly ConfigProblem[];
}

/** A problem in a configuration file, with its position. */
export interface ConfigProblem {
  /** From 1; 0: the file as a whole. */
  readonly line: number;
  readonly column: number;
  /** The field, such as `clientConnection.kubeconfig`; empty: none. */
  readonly field: string;
  readonly message: string;
}

const MAX_IN_MESSAGE = 3;

/** `config.yaml:12:3: mode: expected a text` */
export function problemText(path: string, { line, column, field, message }: ConfigProblem): string {
  const position = line === 0 ? path : `${path}:${line}:${column}`;
  return field === '' ? `${position}: ${message}` : `${position}: ${field}: ${message}`;
}

/** The error for a file with problems; the message lists the first of them. */
export function invalidConfig(path: string, problems: readonly ConfigProblem[]): KpngError {
  const first = problems.slice(0, MAX_IN_MESSAGE).map((each) => problemText(path, each));
  if (problems.length > first.length) first.push(`and ${problems.length - first.length} more`);
  return new KpngError('KPNG_CONFIG_INVALID', first.join('; '));
}
