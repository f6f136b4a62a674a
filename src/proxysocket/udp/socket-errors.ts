import type { ConnectErrorCause } from '../counters.ts';

interface EndpointError {
  readonly kind: 'endpoint';
  readonly cause: ConnectErrorCause;
}

/**
 * What an error of a backend socket means.
 *
 * - `endpoint`: an ICMP message, or the lack of a route: nothing gets to this endpoint.
 * - `limit`: the process or the host has no socket, port or memory left; the endpoint is not to blame.
 * - `datagram`: one datagram could not be sent or received (too large, filtered, no buffer now).
 */
export type SocketErrorKind =
  EndpointError | { readonly kind: 'limit' } | { readonly kind: 'datagram' };

const DATAGRAM: SocketErrorKind = { kind: 'datagram' };
const LIMIT = { kind: 'limit' } as const;
const REFUSED: EndpointError = { kind: 'endpoint', cause: 'refused' };
const UNREACHABLE: EndpointError = { kind: 'endpoint', cause: 'unreachable' };

/** Windows reports a port-unreachable message as ECONNRESET. */
const KINDS: Readonly<Record<string, EndpointError>> = {
  ECONNREFUSED: REFUSED,
  ECONNRESET: REFUSED,
  EHOSTUNREACH: UNREACHABLE,
  EHOSTDOWN: UNREACHABLE,
  ENETUNREACH: UNREACHABLE,
  ENETDOWN: UNREACHABLE,
  EADDRNOTAVAIL: UNREACHABLE,
};

/** Of a socket that is connected. */
export function classifyError(error: Error): SocketErrorKind {
  return KINDS[codeOf(error)] ?? DATAGRAM;
}

const LIMIT_CODES: ReadonlySet<string> = new Set([
  'EMFILE',
  'ENFILE',
  'ENOBUFS',
  'ENOMEM',
  // No local port is left: every session takes one of the host's ephemeral ports.
  'EADDRINUSE',
]);

/** Of a socket that could not be opened, bound or connected. Never `datagram`. */
export function classifyOpenError(error: Error): Exclude<SocketErrorKind, { kind: 'datagram' }> {
  const code = codeOf(error);
  if (LIMIT_CODES.has(code)) return LIMIT;
  return KINDS[code] ?? { kind: 'endpoint', cause: 'other' };
}

function codeOf(error: Error): string {
  return (error as NodeJS.ErrnoException).code ?? '';
}
