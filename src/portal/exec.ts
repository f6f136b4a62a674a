import { execFile, type ExecFileException } from 'node:child_process';
import { networkInterfaces } from 'node:os';
import { promisify } from 'node:util';
import { KpngError, messageOf, type ErrorCode } from '../errors.ts';

/** A program to run. There is no shell: arguments are passed as they are. */
export interface Command {
  readonly file: string;
  readonly args: readonly string[];
  /**
   * Default: empty. Node's pipes are sockets, so programs that open `/dev/stdin` by name (conntrack) cannot read it.
   */
  readonly stdin?: string;
  /** Time limit, after which it is killed. Milliseconds. Default 30 s. */
  readonly timeoutMs?: number;
  /** Maximum standard output, and standard error, above which it is killed. Bytes. Default 1 MiB. */
  readonly maxOutput?: number;
}

/** Output of a program that exited with 0. */
export interface Output {
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a program and waits for its end: the only way in which portals change the host. Rejects with an `ExecError`. */
export type Exec = (command: Command) => Promise<Output>;

/** `exit`: also ended by a foreign signal; `system`: for example a lack of descriptors. */
export type ExecFailure = 'missing' | 'not-allowed' | 'exit' | 'timeout' | 'output' | 'system';

/** `exitCode`: undefined when it was killed. */
type Ending = Partial<Pick<ExecError, 'exitCode' | 'stdout' | 'stderr' | 'cause'>>;

export class ExecError extends Error {
  override readonly name = 'ExecError';
  readonly failure: ExecFailure;
  readonly command: string;
  readonly exitCode: number | undefined;
  readonly stdout: string;
  readonly stderr: string;

  constructor(failure: ExecFailure, command: Command, ending: Ending = {}) {
    const { timeoutMs = DEFAULT_TIMEOUT_MS, maxOutput = DEFAULT_MAX_OUTPUT } = command;
    const { exitCode, stdout = '', stderr = '', cause } = ending;
    const text = printable(command);
    const how = exitCode === undefined ? 'a signal' : `code ${exitCode}`;
    const reasons = {
      missing: 'the program is not installed',
      'not-allowed': 'the program may not be run',
      exit: /\S.*/.exec(stderr)?.[0].trim() ?? `it ended with ${how}`,
      timeout: `killed after ${timeoutMs} ms`,
      output: `killed because it printed more than ${maxOutput} bytes`,
      system: cause instanceof Error ? cause.message : 'it could not be started',
    };
    super(`${text}: ${reasons[failure]}`, { cause });
    this.failure = failure;
    this.command = text;
    this.exitCode = exitCode;
    this.stdout = stdout;
    this.stderr = stderr;
  }
}

const DEFAULT_TIMEOUT_MS = 30_000;
const DEFAULT_MAX_OUTPUT = 1024 * 1024;

/** The command as typed in a shell, without its standard input. */
function printable({ file, args }: Command): string {
  return [file, ...args]
    .map((word) =>
      /^[\w./:=@%+,-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`,
    )
    .join(' ');
}

const run = promisify(execFile);

/** Runs programs of this host, with English messages. */
export const systemExec: Exec = async (command) => {
  const options = {
    env: { ...process.env, LC_ALL: 'C' },
    timeout: command.timeoutMs ?? DEFAULT_TIMEOUT_MS,
    maxBuffer: command.maxOutput ?? DEFAULT_MAX_OUTPUT,
    killSignal: 'SIGKILL',
  } as const;
  try {
    const running = run(command.file, command.args, options);
    // A program that exits without reading all its input breaks the pipe; its exit code says why.
    running.child.stdin?.on('error', () => undefined);
    running.child.stdin?.end(command.stdin);
    return await running;
  } catch (cause) {
    const { code, killed = false, ...printed } = cause as ExecFileException & Partial<Output>;
    if (typeof code === 'number')
      throw new ExecError('exit', command, { ...printed, exitCode: code });
    // After a signal, Node sets it to null.
    const other = typeof code === 'string' ? 'system' : 'exit';
    const failure = FAILURES[code ?? ''] ?? (killed ? 'timeout' : other);
    throw new ExecError(failure, command, { ...printed, cause });
  }
};

const FAILURES: Readonly<Record<string, ExecFailure>> = {
  ENOENT: 'missing',
  EACCES: 'not-allowed',
  EPERM: 'not-allowed',
  ERR_CHILD_PROCESS_STDIO_MAXBUFFER: 'output',
};

/**
 * `host`: unrelated to the input, such as a missing permission. `content`: the kernel or the tool rejects the input.
 */
export type Blame = 'host' | 'content';

/** A program that changes the host failed. */
export class ToolError extends KpngError {
  readonly blame: Blame;

  constructor(blame: Blame, code: ErrorCode, message: string, options: { cause?: unknown } = {}) {
    super(code, message, options);
    this.blame = blame;
  }
}

export function isAboutContent(error: unknown): error is ToolError {
  return error instanceof ToolError && error.blame === 'content';
}

/** Whether a run of a tool succeeds. Rejects if its failure is not about its input. */
export async function isAccepted(run: Promise<unknown>): Promise<boolean> {
  try {
    await run;
    return true;
  } catch (error) {
    if (isAboutContent(error)) return false;
    throw error;
  }
}

/** Why a tool cannot be used, shown by a run that no service is to blame for; undefined: it can. */
export async function problemOf(run: Promise<unknown>): Promise<ToolError | undefined> {
  try {
    await run;
    return undefined;
  } catch (error) {
    if (!(error instanceof ToolError)) throw error;
    const { blame, code, message, cause } = error;
    if (blame === 'host' || code === 'KPNG_PORTAL_UNSUPPORTED') return error;
    return new ToolError('host', 'KPNG_PORTAL_UNSUPPORTED', message, { cause });
  }
}

/** A pattern in a program's output, and its meaning. */
export interface Diagnosis {
  readonly pattern: RegExp;
  readonly code: ErrorCode;
  /** Default `host`. */
  readonly blame?: Blame;
  readonly advice: string;
}

export interface Tool {
  readonly program: string;
  /** Advice if it is missing. */
  readonly remedy: string;
  /** The first match counts. */
  readonly diagnoses: readonly Diagnosis[];
  /** The relevant part of its output. Default: the first line of its standard error. */
  readonly excerpt?: (error: ExecError) => string;
}

/** A missing permission on Linux. */
export const NOT_PERMITTED = {
  pattern: /Permission denied|Operation not permitted|you must be root/,
  code: 'KPNG_PORTAL_PERMISSION',
  advice: 'give the process the capability CAP_NET_ADMIN in the network namespace of the host',
} as const satisfies Diagnosis;

/** Runs the program and returns its output. Rejects with a `ToolError`. `doing`: the action, for the message. */
export async function runTool(
  exec: Exec,
  tool: Tool,
  doing: string,
  command: Omit<Command, 'file'>,
): Promise<string> {
  try {
    return (await exec({ file: tool.program, ...command })).stdout;
  } catch (cause) {
    throw toolFailure(cause, doing, tool);
  }
}

/** Why a run of the program failed. `doing`: the action, for the message. */
export function toolFailure(cause: unknown, doing: string, tool: Tool): ToolError {
  const { program, remedy, excerpt = ({ stderr }) => quoted(stderr) } = tool;
  const isExec = cause instanceof ExecError;
  if (isExec && cause.failure === 'exit') {
    return diagnose(`${cause.stdout}\n${cause.stderr}`, excerpt(cause), doing, tool, cause);
  }
  const [code, what]: [ErrorCode, string] =
    isExec && cause.failure === 'missing'
      ? ['KPNG_PORTAL_TOOL_MISSING', `there is no ${program} on the PATH; ${remedy}`]
      : isExec && cause.failure === 'not-allowed'
        ? ['KPNG_PORTAL_PERMISSION', `${program} may not be run`]
        : ['KPNG_PORTAL_FAILED', messageOf(cause)];
  return new ToolError('host', code, `${doing}: ${what}`, { cause });
}

/** The meaning of a program's output. `excerpt` is quoted. */
export function diagnose(
  printed: string,
  excerpt: string,
  doing: string,
  { program, diagnoses }: Tool,
  cause?: unknown,
): ToolError {
  const text = `${doing}: ${program} says ${excerpt}`;
  const found = diagnoses.find(({ pattern }) => pattern.test(printed));
  if (found === undefined) return new ToolError('content', 'KPNG_PORTAL_FAILED', text, { cause });
  const { blame = 'host', code, advice } = found;
  return new ToolError(blame, code, `${text}; ${advice}`, { cause });
}

/** The first line of a program's output, in quotes. */
export function quoted(printed: string): string {
  return JSON.stringify((printed.trim().split('\n')[0] ?? '').trim().slice(0, 200));
}

/**
 * Prints programs as shell lines instead of running them. Portals read the host through Node; it has no rules of
 * ours.
 */
export function dryExec(write: (text: string) => Promise<void>): Exec {
  return async (command) => {
    const { file, args, stdin } = command;
    // There is no table of ours yet, and the failure would end a shell that runs the lines.
    if (file === 'nft' && args.includes('list')) throw new ExecError('exit', command);
    const end = stdin === '' || stdin?.endsWith('\n') === true ? '' : '\n';
    const input = stdin === undefined ? '' : ` <<'EOF'\n${stdin}${end}EOF`;
    await write(`${printable(command)}${input}\n`);
    const isListing = file === 'ip' && args.includes('address');
    return { stdout: isListing ? JSON.stringify(links()) : '', stderr: '' };
  };
}

/** The interfaces of the host, as `ip -j` lists them. */
function links(): object[] {
  return Object.entries(networkInterfaces()).map(([ifname, list = []]) => ({
    ifname,
    flags: list.some(({ internal }) => internal) ? ['UP', 'LOOPBACK'] : ['UP'],
    addr_info: list.map(({ address }) => ({ local: address })),
  }));
}
