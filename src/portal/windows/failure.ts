import { KpngError, messageOf } from '../../errors.ts';
import { ExecError } from '../exec.ts';

/** Why netsh could not do its work: `doing` says what that was. */
export function netshFailure(cause: unknown, doing: string): KpngError {
  if (cause instanceof KpngError) return cause;
  if (!(cause instanceof ExecError)) {
    return new KpngError('KPNG_PORTAL_FAILED', `${doing}: ${messageOf(cause)}`, { cause });
  }
  switch (cause.failure) {
    case 'missing':
      return new KpngError(
        'KPNG_PORTAL_TOOL_MISSING',
        `${doing}: there is no netsh on the PATH; it is in %SystemRoot%\\System32, or leave ` +
          '--portal-interface empty and give the host the addresses yourself',
        { cause },
      );
    case 'not-allowed':
      return new KpngError('KPNG_PORTAL_PERMISSION', `${doing}: netsh may not be run`, { cause });
    case 'exit':
      return saidFailure(cause, doing);
    case 'timeout':
    case 'output':
    case 'system':
      return new KpngError('KPNG_PORTAL_FAILED', `${doing}: ${cause.message}`, { cause });
    default:
      return cause.failure satisfies never;
  }
}

/** netsh ends with 1 whatever is wrong, and says what in the language of the system on its output. */
function saidFailure(cause: ExecError, doing: string): KpngError {
  const said = firstLine(cause.stdout) ?? firstLine(cause.stderr) ?? `code ${cause.exitCode}`;
  const text = `${doing}: netsh says ${JSON.stringify(said.slice(0, 200))}`;
  if (/elevation|administrator|access is denied/i.test(said)) {
    return new KpngError(
      'KPNG_PORTAL_PERMISSION',
      `${text}; run the process as an administrator or as LocalSystem`,
      { cause },
    );
  }
  return new KpngError(
    'KPNG_PORTAL_FAILED',
    `${text}; changing addresses needs an administrator or LocalSystem`,
    { cause },
  );
}

function firstLine(text: string): string | undefined {
  return text
    .split('\n')
    .map((line) => line.trim())
    .find((line) => line !== '');
}
