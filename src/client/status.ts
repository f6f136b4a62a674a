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

/** Facts about a stream that explain its end. */
export interface StreamFacts {
  readonly maxMessageSize: number;
  /** A likely reason why the server does not know the method. */
  readonly unimplemented: string;
  /** Without TLS: a TCP connection was established, but no HTTP/2 on it. */
  readonly notUnderstood: boolean;
}

/** Why a stream ended, with advice where possible. Code KPNG_SOURCE_LOST. */
export function streamError(cause: unknown, facts: StreamFacts): KpngError {
  const { code, details } = statusOf(cause);
  const name = code === undefined ? 'error' : (CODE_NAMES[code] ?? `status ${code}`);
  const hint = hintFor(name, details, facts);
  const message = `${name}: ${details}${hint === undefined ? '' : ` (${hint})`}`;
  return new KpngError('KPNG_SOURCE_LOST', message, { cause });
}

/** The error of a TLS client when the server answers in plaintext, or closes at the ClientHello. */
const NO_TLS = /wrong version number|packet length too long|closed during the TLS handshake/;

function hintFor(
  name: string,
  details: string,
  { maxMessageSize, unimplemented, notUnderstood }: StreamFacts,
): string | undefined {
  if (notUnderstood) {
    return 'it may be a server with TLS, and this client uses none: see --api-client-tls-ca';
  }
  if (NO_TLS.test(details)) {
    return 'it may be a server without TLS: this client uses TLS because an --api-client-tls flag is given';
  }
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

/** grpc-js appends a mostly empty note, and repeats the code. */
function tidy(details: string): string {
  return (
    details
      .replace(/\.? *Resolution note: *$/, '')
      .replace(
        /^No connection established\. Last error: (?:Error: )?/,
        'no connection established: ',
      )
      .replace(/Failed to connect \(\S+\)$/, 'the server closed the connection')
      // Of an OpenSSL error, only the text is readable.
      .replace(/[0-9A-F]+:error:[0-9A-F]+:[^:]*:[^:]*:([^:]+):.*$/s, '$1')
  );
}
