import { KpngError } from '../errors.ts';

/** Facts about a stream that explain its end. */
export interface StreamFacts {
  /** gRPC's status codes: their names by number. */
  readonly codes: Readonly<Record<number, string>>;
  readonly maxMessageSize: number;
  /** A likely reason why the server does not know the method. */
  readonly unimplemented: string;
  /** Without TLS: a TCP connection was established, but no HTTP/2 on it. */
  readonly notUnderstood: boolean;
}

/** Why a stream ended, with advice where possible. Code KPNG_SOURCE_LOST. */
export function streamError(cause: unknown, facts: StreamFacts): KpngError {
  const { code, details } = statusOf(cause);
  const name = code === undefined ? 'error' : (facts.codes[code] ?? `status ${code}`);
  const hint = hintFor(name, details, facts);
  const message = `${name}: ${details}${hint === undefined ? '' : ` (${hint})`}`;
  // Without the cause, which says the same in other words.
  return new KpngError('KPNG_SOURCE_LOST', message);
}

/** Messages of OpenSSL and Node about a failed handshake, and what to do. */
const TLS_HINTS: readonly (readonly [RegExp, string])[] = [
  // Of a server that answers in plaintext, or closes at the ClientHello.
  [
    /wrong version number|packet length too long|closed during the TLS handshake/,
    'it may be a server without TLS; leave out the --api-client-tls flags, or give the server a certificate',
  ],
  [
    /self-signed certificate/,
    'the certificate of the server, or its authority, is not trusted; give it with --api-client-tls-ca',
  ],
  [
    /unable to (?:get (?:local )?issuer|verify)/,
    'an unknown authority signed the certificate of the server; give it with --api-client-tls-ca',
  ],
  [/certificate has expired/, 'renew the certificate of the server'],
  [
    /does not match certificate's altnames/,
    'use a name of the certificate in --api, or give the server a certificate for this one',
  ],
];

function hintFor(
  name: string,
  details: string,
  { maxMessageSize, unimplemented, notUnderstood }: StreamFacts,
): string | undefined {
  if (notUnderstood) {
    return 'it may be a server with TLS, and this client uses none; give its authority with --api-client-tls-ca';
  }
  const tls = TLS_HINTS.find(([pattern]) => pattern.test(details));
  if (tls !== undefined) return tls[1];
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

/** grpc-js appends a mostly empty note and the time, and repeats the code. */
function tidy(details: string): string {
  return (
    details
      .replace(/\.? *Resolution note: *$/, '')
      .replace(/ \([-\d]+T[:.\d]+Z\)/, '')
      .replace(
        /^No connection established\. Last error: (?:Error: )?/,
        'no connection established: ',
      )
      .replace(/(?:Failed to connect|read ECONNRESET)$/, 'the server closed the connection')
      // Of an OpenSSL error, only the text is readable.
      .replace(/[0-9A-F]+:error:[0-9A-F]+:[^:]*:[^:]*:([^:]+):.*$/s, '$1')
      // Advice of Node that has no effect here.
      .replace(
        /; if the root CA is installed locally, try running Node\.js with --use-system-ca/,
        '',
      )
  );
}
