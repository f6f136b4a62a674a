import { KpngError } from '../errors.ts';

/** Maximum length of a chain of causes, which may be circular. */
const MAX_CAUSES = 5;

/**
 * An error as log keys: `err` its message, `code` its stable code or the system's, `cause` the messages of its
 * causes, and `servicePortName` if it concerns one.
 */
export function describeError(error: unknown): Record<string, string> {
  if (!(error instanceof Error)) return { err: text(error) };
  const keys: Record<string, string> = { err: error.message === '' ? error.name : error.message };
  const code = codeOf(error);
  if (code !== undefined) keys['code'] = code;
  const causes = causesOf(error);
  if (causes.length > 0) keys['cause'] = causes.join(': ');
  if (error instanceof KpngError && error.servicePort !== undefined) {
    keys['servicePortName'] = error.servicePort;
  }
  return keys;
}

/** The messages of the causes of an error, without repetitions. */
function causesOf(error: Error): string[] {
  const causes: string[] = [];
  let previous = error.message;
  let { cause } = error;
  for (let depth = 0; cause !== undefined && depth < MAX_CAUSES; depth += 1) {
    const message = cause instanceof Error ? cause.message : text(cause);
    if (!previous.includes(message) && !message.includes(previous)) causes.push(message);
    previous = message;
    cause = cause instanceof Error ? cause.cause : undefined;
  }
  return causes;
}

function codeOf(error: Error): string | undefined {
  if (!('code' in error)) return undefined;
  return typeof error.code === 'string' ? error.code : undefined;
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? String(value));
}
