import { KpngError } from '../../errors.ts';
import type { ConnectErrorCause } from '../counters.ts';

const CAUSES: Readonly<Record<string, ConnectErrorCause>> = {
  ECONNREFUSED: 'refused',
  ETIMEDOUT: 'timeout',
  EHOSTUNREACH: 'unreachable',
  ENETUNREACH: 'unreachable',
  EHOSTDOWN: 'unreachable',
  ENETDOWN: 'unreachable',
  // It was there for a moment: the endpoint ended with connections that it had not accepted yet.
  ECONNRESET: 'reset',
  // No descriptor, no memory, or no source port left towards this endpoint: ours, not the endpoint's.
  EMFILE: 'limit',
  ENFILE: 'limit',
  ENOBUFS: 'limit',
  ENOMEM: 'limit',
  EADDRNOTAVAIL: 'limit',
};

/** The cause of a failed connect, from the operating system's code. */
export function connectErrorCause(error: NodeJS.ErrnoException): ConnectErrorCause {
  return CAUSES[error.code ?? ''] ?? 'other';
}

/** The socket was connected to itself. */
export function selfConnectError(): NodeJS.ErrnoException {
  const error = new Error('connected to itself: no process listens on the endpoint');
  return Object.assign(error, { code: 'ECONNREFUSED' });
}

export function timeoutError(timeoutMs: number): NodeJS.ErrnoException {
  return Object.assign(new Error(`no answer within ${timeoutMs} ms`), { code: 'ETIMEDOUT' });
}

/** What an endpoint is refused with that leads a service port back to itself. */
export function loopError(servicePort: string, endpoint: string): KpngError {
  return new KpngError(
    'KPNG_ENDPOINT_LOOP',
    `${servicePort}: the endpoint ${endpoint} leads back to the service itself`,
    { servicePort },
  );
}
