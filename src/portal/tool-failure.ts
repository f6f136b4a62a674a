import { KpngError, messageOf, type ErrorCode } from '../errors.ts';
import { type Command, type Exec, ExecError } from './exec.ts';

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

/** Advice for a missing permission on Linux. */
export const NET_ADMIN =
  'give the process the capability CAP_NET_ADMIN in the network namespace of the host';

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
  const failure = (code: ErrorCode, what: string): ToolError =>
    new ToolError('host', code, `${doing}: ${what}`, { cause });
  if (cause instanceof ToolError) return cause;
  if (!(cause instanceof ExecError)) return failure('KPNG_PORTAL_FAILED', messageOf(cause));
  if (cause.failure === 'missing') {
    return failure('KPNG_PORTAL_TOOL_MISSING', missingText(program, remedy));
  }
  if (cause.failure === 'not-allowed') {
    return failure('KPNG_PORTAL_PERMISSION', `${program} may not be run`);
  }
  if (cause.failure !== 'exit') return failure('KPNG_PORTAL_FAILED', cause.message);
  return diagnose(`${cause.stdout}\n${cause.stderr}`, excerpt(cause), doing, tool, cause);
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

export function missingText(program: string, remedy: string): string {
  return `there is no ${program} on the PATH; ${remedy}`;
}
