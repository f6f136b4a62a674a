import { KpngError } from '../../errors.ts';
import type { ExecError } from '../exec.ts';
import { toolFailure } from '../interface/tool-failure.ts';

/** Why netsh could not do its work: `doing` says what that was. */
export function netshFailure(cause: unknown, doing: string): KpngError {
  return toolFailure(cause, doing, {
    name: 'netsh',
    withoutIt:
      'it is in %SystemRoot%\\System32, or leave --portal-interface empty and give the host the ' +
      'addresses yourself',
    said: saidFailure,
  });
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
