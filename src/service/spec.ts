export type StartMode = 'delayed-auto' | 'auto' | 'demand';

/** A Windows service, in its desired state. */
export interface ServiceSpec {
  /** Letters, digits and any of `_ . -`; it also names the log file. */
  readonly name: string;
  readonly displayName: string;
  readonly description: string;
  readonly program: string;
  /** Its arguments, unquoted. */
  readonly args: readonly string[];
  readonly directory: string;
  readonly logDirectory: string;
  /** Size at which the log file is rotated. Bytes. */
  readonly logBytes: number;
  /** Variables besides those of the system: `NAME=value`. */
  readonly environment: readonly string[];
  readonly start: StartMode;
  /** Names of services to start before it. */
  readonly dependsOn: readonly string[];
  /** Delay before a restart after it exited on its own. Milliseconds. */
  readonly restartDelayMs: number;
  /** Time limit of a stop before it is killed. Milliseconds. */
  readonly stopTimeoutMs: number;
}

/**
 * - `absent`: there is no service of the name
 * - `stopped`, `running`: as reported by Windows
 * - `pausing`: the program ended too often, and the wrapper delays its restart
 * - `changing`: it is starting or stopping
 */
export type ServiceState = 'absent' | 'stopped' | 'running' | 'pausing' | 'changing';

/**
 * Joins arguments into one text in the way that Windows programs split it: in quotes if there is a blank, with a backslash
 * before each quote, and backslashes before a quote doubled.
 */
export function commandLine(args: readonly string[]): string {
  return args.map(quoted).join(' ');
}

function quoted(arg: string): string {
  if (/^[^\s"]+$/.test(arg)) return arg;
  const escaped = arg.replaceAll(/(\\*)"/g, String.raw`$1$1\"`).replace(/(\\+)$/, '$1$1');
  return `"${escaped}"`;
}
