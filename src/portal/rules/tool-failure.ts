/** What it means when a program that writes rules fails. */
import { messageOf, type ErrorCode } from '../../errors.ts';
import { ExecError } from '../exec.ts';
import { RuleError, type Blame } from './store.ts';

/** Something that a program says, and what to make of it. */
export interface Saying {
  readonly pattern: RegExp;
  readonly code: ErrorCode;
  readonly blame: Blame;
  readonly advice: string;
}

export interface RuleTool {
  readonly program: string;
  /** The package that it comes with. */
  readonly debian: string;
  /** The first that fits counts. */
  readonly sayings: readonly Saying[];
  /** What is worth repeating of what it has said. */
  said(error: ExecError): string;
}

/** Why a run of the program failed. `doing` is what was being done, for the message. */
export function toolFailure(cause: unknown, doing: string, tool: RuleTool): RuleError {
  const failure = (blame: Blame, code: ErrorCode, what: string): RuleError =>
    new RuleError(blame, code, `${doing}: ${what}`, { cause });
  if (!(cause instanceof ExecError)) return failure('host', 'KPNG_PORTAL_FAILED', messageOf(cause));
  const { program } = tool;
  switch (cause.failure) {
    case 'missing':
      return failure('host', 'KPNG_PORTAL_TOOL_MISSING', missingText(program, tool.debian));
    case 'not-allowed':
      return failure('host', 'KPNG_PORTAL_PERMISSION', `${program} may not be run`);
    case 'exit':
      break;
    case 'timeout':
    case 'output':
    case 'system':
      return failure('host', 'KPNG_PORTAL_FAILED', cause.message);
  }
  const said = `${program} says ${tool.said(cause)}`;
  const saying = tool.sayings.find(({ pattern }) => pattern.test(cause.stderr));
  if (saying === undefined) return failure('content', 'KPNG_PORTAL_FAILED', said);
  return failure(saying.blame, saying.code, `${said}; ${saying.advice}`);
}

export function missingText(program: string, debian: string): string {
  return `there is no ${program} on the PATH; install the package ${debian}, or use another --portal`;
}
