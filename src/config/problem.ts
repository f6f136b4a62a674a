import { KpngError } from '../errors.ts';

/** A problem in a configuration file, with its position. */
export interface ConfigProblem {
  /** From 1; 0: the file as a whole. */
  readonly line: number;
  readonly column: number;
  /** The field, such as `clientConnection.kubeconfig`; empty: none. */
  readonly field: string;
  readonly message: string;
}

/** Maximum number of problems in one message. */
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
