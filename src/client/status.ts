import { KpngError } from '../errors.ts';

/** gRPC's status codes by number. Here so that naming one does not load the library. */
const CODE_NAMES = [
  'OK',
  'CANCELLED',
  'UNKNOWN',
  'INVALID_ARGUMENT',
  'DEADLINE_EXCEEDED',
  'NOT_FOUND',
  'ALREADY_EXISTS',
  'PERMISSION_DENIED',
  'RESOURCE_EXHAUSTED',
  'FAILED_PRECONDITION',
  'ABORTED',
  'OUT_OF_RANGE',
  'UNIMPLEMENTED',
  'INTERNAL',
  'UNAVAILABLE',
  'DATA_LOSS',
  'UNAUTHENTICATED',
] as const;

/** Why a stream ended, in words that say what to do where that is known. Code KPNG_SOURCE_LOST. */
export function streamError(
  cause: unknown,
  maxMessageSize: number,
  unimplemented: string,
): KpngError {
  const { code, details } = statusOf(cause);
  const name = code === undefined ? 'error' : (CODE_NAMES[code] ?? `status ${code}`);
  const hint = hintFor(name, details, maxMessageSize, unimplemented);
  const message = `${name}: ${details}${hint === undefined ? '' : ` (${hint})`}`;
  return new KpngError('KPNG_SOURCE_LOST', message, { cause });
}

function hintFor(
  name: string,
  details: string,
  maxMessageSize: number,
  unimplemented: string,
): string | undefined {
  if (name === 'UNIMPLEMENTED') return unimplemented;
  if (name === 'RESOURCE_EXHAUSTED' && /message/i.test(details)) {
    return `--max-msg-size is ${maxMessageSize}`;
  }
  return undefined;
}

function statusOf(cause: unknown): { code: number | undefined; details: string } {
  if (!(cause instanceof Error)) return { code: undefined, details: String(cause) };
  const code = 'code' in cause && typeof cause.code === 'number' ? cause.code : undefined;
  const details = 'details' in cause && typeof cause.details === 'string' ? cause.details : '';
  return { code, details: tidy(details === '' ? cause.message : details) };
}

/** grpc-js ends its text with a note that is mostly empty, and repeats that an error is an error. */
function tidy(details: string): string {
  return details
    .replace(/\.? *Resolution note: *$/, '')
    .replace('No connection established. Last error: Error: ', 'no connection established: ');
}
