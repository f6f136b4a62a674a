import { KpngError, messageOf } from '../../errors.ts';
import { ExecError } from '../exec.ts';

/** A program that changes addresses of interfaces. */
export interface AddressTool {
  readonly name: string;
  /** What to do where there is none. */
  readonly withoutIt: string;
  /** What it means that the program ended with another code than 0. */
  readonly said: (cause: ExecError, doing: string) => KpngError;
}

/** Why the program could not do its work at all: `doing` says what that was. */
export function toolFailure(cause: unknown, doing: string, tool: AddressTool): KpngError {
  if (cause instanceof KpngError) return cause;
  if (!(cause instanceof ExecError)) {
    return new KpngError('KPNG_PORTAL_FAILED', `${doing}: ${messageOf(cause)}`, { cause });
  }
  const { name, withoutIt, said } = tool;
  switch (cause.failure) {
    case 'missing':
      return new KpngError(
        'KPNG_PORTAL_TOOL_MISSING',
        `${doing}: there is no ${name} on the PATH; ${withoutIt}`,
        { cause },
      );
    case 'not-allowed':
      return new KpngError('KPNG_PORTAL_PERMISSION', `${doing}: ${name} may not be run`, { cause });
    case 'exit':
      return said(cause, doing);
    case 'timeout':
    case 'output':
    case 'system':
      return new KpngError('KPNG_PORTAL_FAILED', `${doing}: ${cause.message}`, { cause });
    default:
      return cause.failure satisfies never;
  }
}
