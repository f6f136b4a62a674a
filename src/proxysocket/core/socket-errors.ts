import { KpngError } from '../../errors.ts';
import type { BalancerEndpoint } from '../../roundrobin/endpoint.ts';
import type { ConnectErrorCause } from '../counters.ts';
import type { Protocol } from '../spec.ts';

const CAUSES: Readonly<Record<string, ConnectErrorCause>> = {
  ECONNREFUSED: 'refused',
  ETIMEDOUT: 'timeout',
  EHOSTUNREACH: 'unreachable',
  ENETUNREACH: 'unreachable',
  EHOSTDOWN: 'unreachable',
  ENETDOWN: 'unreachable',
  // It was established for a moment: the endpoint ended with connections that it had not accepted yet.
  ECONNRESET: 'reset',
  // Out of descriptors, memory or local ports: our fault, not the endpoint's.
  EMFILE: 'limit',
  ENFILE: 'limit',
  ENOBUFS: 'limit',
  ENOMEM: 'limit',
  EADDRINUSE: 'limit',
  EADDRNOTAVAIL: 'limit',
};

/** What codes mean that mean something else for UDP. */
const UDP_CAUSES: typeof CAUSES = {
  // A port-unreachable message, on Windows.
  ECONNRESET: 'refused',
  // No address of the host fits; a lack of local ports is EADDRINUSE.
  EADDRNOTAVAIL: 'unreachable',
};

/** Why a socket could not be opened, bound or connected, from the operating system's code. */
export function connectErrorCause(
  { code = '', syscall }: NodeJS.ErrnoException,
  protocol: Protocol = 'TCP',
): ConnectErrorCause {
  // The address of our side is not the endpoint's fault.
  if (syscall === 'bind') return 'limit';
  return (protocol === 'UDP' ? UDP_CAUSES[code] : undefined) ?? CAUSES[code] ?? 'other';
}

/**
 * Why nothing gets to the endpoint of a connected UDP socket: an ICMP message, or the lack of a route. Undefined: one
 * datagram could not be sent or received (too large, filtered, no buffer now).
 */
export function lossCause(error: NodeJS.ErrnoException): ConnectErrorCause | undefined {
  const cause = connectErrorCause(error, 'UDP');
  return cause === 'refused' || cause === 'unreachable' ? cause : undefined;
}

export function timeoutError(timeoutMs: number): NodeJS.ErrnoException {
  return Object.assign(new Error(`no answer within ${timeoutMs} ms`), { code: 'ETIMEDOUT' });
}

/**
 * For an endpoint of this host, the kernel may choose the endpoint's port as our local port. If no process listens
 * there, the socket is connected to itself: clients would get their own bytes, and the endpoint not its port.
 */
export function selfConnectError(
  local: { readonly address?: string | undefined; readonly port?: number | undefined },
  { address, port }: BalancerEndpoint,
): NodeJS.ErrnoException | undefined {
  if (local.port !== port || local.address !== address) return undefined;
  const error = new Error('connected to itself: no process listens on the endpoint');
  return Object.assign(error, { code: 'ECONNREFUSED' });
}

/** The endpoint is an address of the service port itself. */
export function loopError(servicePort: string, endpoint: string): KpngError {
  return new KpngError(
    'KPNG_ENDPOINT_LOOP',
    `${servicePort}: the endpoint ${endpoint} loops back to the service itself`,
    { servicePort },
  );
}
