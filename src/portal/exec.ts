import { type ChildProcess, spawn } from 'node:child_process';
import { networkInterfaces } from 'node:os';

/** A program to run. There is no shell: arguments are passed as they are. */
export interface Command {
  /** Name or path of the program. */
  readonly file: string;
  readonly args: readonly string[];
  /**
   * Default: empty. Node's pipes are sockets, so programs that open `/dev/stdin` by name (conntrack) cannot read it.
   */
  readonly stdin?: string;
  /** Time limit, after which it is killed. Milliseconds. Default 30 s. */
  readonly timeoutMs?: number;
  /** Maximum total output, above which it is killed. Bytes. Default 1 MiB. */
  readonly maxOutput?: number;
}

/** Output of a program that exited with 0. */
export interface Output {
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a program and waits for its end: the only way in which portals change the host. Rejects with an `ExecError`. */
export type Exec = (command: Command) => Promise<Output>;

/**
 * - `missing`: not on the PATH
 * - `not-allowed`: no permission to run it
 * - `exit`: it exited with a code other than 0, or was ended by a foreign signal
 * - `timeout`, `output`: it took too long or printed too much, and was killed
 * - `system`: it could not be started, for example for lack of descriptors
 */
export type ExecFailure = 'missing' | 'not-allowed' | 'exit' | 'timeout' | 'output' | 'system';

/** A program failed. */
export class ExecError extends Error {
  override readonly name = 'ExecError';
  readonly failure: ExecFailure;
  /** Formatted by `printable`. */
  readonly command: string;
  /** Undefined when it was killed. */
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

/** The command as typed in a shell, without its standard input. */
export function printable({ file, args }: Command): string {
  return [file, ...args]
    .map((word) =>
      /^[\w./:=@%+,-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`,
    )
    .join(' ');
}

/** Runs programs of this host, with English messages. */
export const systemExec: Exec = async (command) => {
  const child = start(command);
  // A program that exits without reading all its input breaks the pipe; its exit code says why.
  child.stdin?.on('error', () => undefined);
  child.stdin?.end(command.stdin);
  return outcome(command, child);
};

/** Most failures to start are reported by the child's `error` event, and a few are thrown. */
function start(command: Command): ChildProcess {
  try {
    return spawn(command.file, command.args, {
      stdio: 'pipe',
      env: { ...process.env, LC_ALL: 'C' },
    });
  } catch (cause) {
    throw new ExecError(startFailure(cause as NodeJS.ErrnoException), command, { cause });
  }
}

/** Resolves when the program has exited with 0 and all its output has been read. */
async function outcome(command: Command, child: ChildProcess): Promise<Output> {
  const { timeoutMs = DEFAULT_TIMEOUT_MS, maxOutput = DEFAULT_MAX_OUTPUT } = command;
  const { promise, resolve, reject } = Promise.withResolvers<Output>();
  const printed = { stdout: '', stderr: '' };
  let size = 0;
  let killedFor: 'timeout' | 'output' | undefined;
  const kill = (why: 'timeout' | 'output'): void => {
    killedFor ??= why;
    child.kill('SIGKILL');
    // A child of its own may have inherited the pipes and would keep them open.
    for (const pipe of child.stdio) pipe?.destroy();
  };
  const timer = setTimeout(() => kill('timeout'), timeoutMs);
  for (const name of ['stdout', 'stderr'] as const) {
    child[name]?.setEncoding('utf8').on('data', (text: string) => {
      size += Buffer.byteLength(text);
      if (size > maxOutput) kill('output');
      else printed[name] += text;
    });
  }
  child.once('error', (cause: NodeJS.ErrnoException) => {
    reject(new ExecError(startFailure(cause), command, { ...printed, cause }));
  });
  child.once('close', (code) => {
    if (killedFor !== undefined) reject(new ExecError(killedFor, command, printed));
    else if (code === 0) resolve(printed);
    else
      reject(
        new ExecError('exit', command, { ...printed, ...(code !== null && { exitCode: code }) }),
      );
  });
  return promise.finally(() => clearTimeout(timer));
}

function startFailure({ code }: NodeJS.ErrnoException): ExecFailure {
  if (code === 'ENOENT') return 'missing';
  return code === 'EACCES' || code === 'EPERM' ? 'not-allowed' : 'system';
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

/**
 * Prints programs as shell lines instead of running them. Portals read the host through Node; it has no rules of
 * ours.
 */
export function dryExec(write: (text: string) => Promise<void>): Exec {
  const host = new DryHost();
  return async (command) => {
    await write(shellText(command));
    return { stdout: host.answer(command), stderr: '' };
  };
}

/** The command with its standard input, for a shell. */
export function shellText(command: Command): string {
  const { stdin } = command;
  if (stdin === undefined) return `${printable(command)}\n`;
  const body = stdin.endsWith('\n') || stdin === '' ? stdin : `${stdin}\n`;
  return `${printable(command)} <<'EOF'\n${body}EOF\n`;
}

/** The output of programs that read the host. */
class DryHost {
  /** Interfaces that a dry run would have created. */
  readonly #made: string[] = [];

  answer({ file, args, stdin = '' }: Command): string {
    if (file !== 'ip') return '';
    for (const [, name = ''] of stdin.matchAll(/^link add name (\S+) /gm)) this.#made.push(name);
    return args.includes('address') ? JSON.stringify(this.#links()) : '';
  }

  #links(): object[] {
    const there = Object.entries(networkInterfaces()).map(([ifname, list = []]) => {
      const loopback = list.some(({ internal }) => internal);
      return {
        ifname,
        flags: loopback ? ['UP', 'LOOPBACK'] : ['UP'],
        addr_info: list.map(({ address }) => ({ local: address })),
      };
    });
    const made = this.#made.map((ifname) => ({ ifname, flags: ['UP'], addr_info: [] }));
    return [...there, ...made];
  }
}
