import { execFile } from 'node:child_process';

/** A program to run. There is no shell: arguments are passed as they are. */
export interface Command {
  /** Name or path of the program. */
  readonly file: string;
  readonly args: readonly string[];
  /** What it reads from its standard input; default: nothing. */
  readonly stdin?: string;
  /** It is killed after this long. Milliseconds. Default 30 s. */
  readonly timeoutMs?: number;
  /** It is killed when it prints more than this, in all. Bytes. Default 1 MiB. */
  readonly maxOutput?: number;
}

/** What a program that ended with 0 has printed. */
export interface Output {
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * Runs a program to its end. The one way in which portals do anything to the host, so that tests can
 * put something else in its place. Rejects with an `ExecError`.
 */
export type Exec = (command: Command) => Promise<Output>;

/**
 * - `missing`: there is no such program on the PATH
 * - `not-allowed`: it may not be run
 * - `exit`: it ended with another code than 0, or by a signal that was not ours
 * - `timeout`, `output`: it took too long or printed too much, and was killed
 * - `system`: it could not be started for another reason, such as a lack of descriptors
 */
export type ExecFailure = 'missing' | 'not-allowed' | 'exit' | 'timeout' | 'output' | 'system';

/** A program did not do what it was run for. */
export class ExecError extends Error {
  override readonly name = 'ExecError';
  readonly failure: ExecFailure;
  /** As `printable` gives it. */
  readonly command: string;
  /** Undefined when it did not end by itself. */
  readonly exitCode: number | undefined;
  readonly stdout: string;
  readonly stderr: string;

  constructor(
    failure: ExecFailure,
    command: Command,
    detail: { exitCode?: number; stdout?: string; stderr?: string; cause?: unknown } = {},
  ) {
    const text = printable(command);
    super(`${text}: ${reasonText(failure, command, detail)}`, { cause: detail.cause });
    this.failure = failure;
    this.command = text;
    this.exitCode = detail.exitCode;
    this.stdout = detail.stdout ?? '';
    this.stderr = detail.stderr ?? '';
  }
}

const DEFAULT_TIMEOUT_MS = 30_000;
const DEFAULT_MAX_OUTPUT = 1024 * 1024;

/** The command as one could type it, without its standard input. */
export function printable({ file, args }: Command): string {
  return [file, ...args]
    .map((word) =>
      /^[\w./:=@%+,-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`,
    )
    .join(' ');
}

/** Runs programs of this host. Their messages are in English whatever the locale. */
export const systemExec: Exec = async (command) => {
  const { file, args, stdin = '' } = command;
  const { promise, resolve, reject } = Promise.withResolvers<Output>();
  const options = {
    encoding: 'utf8',
    timeout: command.timeoutMs ?? DEFAULT_TIMEOUT_MS,
    maxBuffer: command.maxOutput ?? DEFAULT_MAX_OUTPUT,
    killSignal: 'SIGKILL',
    env: { ...process.env, LC_ALL: 'C' },
  } as const;
  const child = execFile(file, args, options, (error, stdout, stderr) => {
    if (error === null) resolve({ stdout, stderr });
    else reject(failureOf(command, error, stdout, stderr));
  });
  // A program that ends without reading everything breaks the pipe; its exit code says why.
  child.stdin?.on('error', () => undefined);
  child.stdin?.end(stdin);
  return promise;
};

function failureOf(
  command: Command,
  error: Error & { code?: number | string | null; killed?: boolean },
  stdout: string,
  stderr: string,
): ExecError {
  const { code } = error;
  const detail = { stdout, stderr, cause: error };
  if (code === 'ENOENT') return new ExecError('missing', command, detail);
  if (code === 'EACCES' || code === 'EPERM') return new ExecError('not-allowed', command, detail);
  if (code === 'ERR_CHILD_PROCESS_STDIO_MAXBUFFER') return new ExecError('output', command, detail);
  if (typeof code === 'string') return new ExecError('system', command, detail);
  if (error.killed === true) return new ExecError('timeout', command, detail);
  return new ExecError('exit', command, {
    ...detail,
    ...(typeof code === 'number' && { exitCode: code }),
  });
}

function reasonText(
  failure: ExecFailure,
  command: Command,
  { exitCode, stderr = '', cause }: { exitCode?: number; stderr?: string; cause?: unknown },
): string {
  switch (failure) {
    case 'missing':
      return 'the program is not installed';
    case 'not-allowed':
      return 'the program may not be run';
    case 'timeout':
      return `killed after ${command.timeoutMs ?? DEFAULT_TIMEOUT_MS} ms`;
    case 'output':
      return `killed because it printed more than ${command.maxOutput ?? DEFAULT_MAX_OUTPUT} bytes`;
    case 'system':
      return cause instanceof Error ? cause.message : 'it could not be started';
    case 'exit':
      break;
  }
  const how = exitCode === undefined ? 'a signal' : `code ${exitCode}`;
  return firstLine(stderr) ?? `it ended with ${how}`;
}

function firstLine(text: string): string | undefined {
  return text
    .split('\n')
    .map((line) => line.trim())
    .find((line) => line !== '');
}
