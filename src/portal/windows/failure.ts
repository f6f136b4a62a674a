import type { ExecError } from '../exec.ts';
import { quoted, toolFailure, type ToolError } from '../tool-failure.ts';

/** Why netsh could not do its work: `doing` says what that was. */
export function netshFailure(cause: unknown, doing: string): ToolError {
  return toolFailure(cause, doing, {
    program: 'netsh',
    remedy:
      'it is in %SystemRoot%\\System32, or leave --portal-interface empty and give the host the ' +
      'addresses yourself',
    diagnoses: [
      {
        pattern: /elevation|administrator|access is denied/i,
        code: 'KPNG_PORTAL_PERMISSION',
        advice: 'run the process as an administrator or as LocalSystem',
      },
      {
        pattern: /(?:)/,
        code: 'KPNG_PORTAL_FAILED',
        advice: 'changing addresses needs an administrator or LocalSystem',
      },
    ],
    excerpt,
  });
}

/** netsh ends with 1 whatever is wrong, and says what in the language of the system on its output. */
function excerpt({ stdout, stderr, exitCode }: ExecError): string {
  return quoted(`${stdout}\n${stderr}`.trim() || `code ${exitCode}`);
}
