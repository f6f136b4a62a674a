import { KpngError } from '../../errors.ts';
import type { Balancer, BalancerEndpoint, Pick, PickRequest } from '../../roundrobin/types.ts';
import type { ConnectErrorCause } from '../counters.ts';

const NONE: readonly BalancerEndpoint[] = [];

/**
 * Which endpoint a client is to be connected to next.
 *
 * Each attempt takes an endpoint that this client has not tried, while there is one. Endpoints that
 * only were too slow are retried after that, with the longer limit of the later attempts; those
 * that refused are not.
 */
export class Tries {
  readonly #most: number;
  #made = 0;
  #tried = NONE;
  /** The part of `tried` that will not be retried. */
  #refused = NONE;

  /** `most`: how many attempts there are. */
  constructor(most: number) {
    this.#most = most;
  }

  /** Attempts so far, including the current one. */
  get made(): number {
    return this.#made;
  }

  get tried(): readonly BalancerEndpoint[] {
    return this.#tried;
  }

  /**
   * Picks for the next attempt and counts it; undefined when none is left to make. `request` knows
   * `tried` of this object.
   */
  next(balancer: Balancer, request: PickRequest): Pick | undefined {
    if (this.#made >= this.#most) return undefined;
    const pick = this.#pick(balancer, request);
    if (pick !== undefined) this.#made += 1;
    return pick;
  }

  /** The present attempt failed; `slow`: it might do with more time. */
  failed(endpoint: BalancerEndpoint, slow: boolean): void {
    this.#tried = [...this.#tried, endpoint];
    if (!slow) this.#refused = [...this.#refused, endpoint];
  }

  /** The present attempt does not count: the next one may take as long as it could have. */
  withdraw(): void {
    this.#made -= 1;
  }

  /** A balancer that has nothing untried left returns one that was tried. */
  #pick(balancer: Balancer, request: PickRequest): Pick | undefined {
    const pick = balancer.pick(request);
    if (pick === undefined || !this.#tried.includes(pick.endpoint)) return pick;
    this.#tried = this.#refused;
    const again = balancer.pick(request);
    return again === undefined || this.#refused.includes(again.endpoint) ? undefined : again;
  }
}

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

/** The endpoint is an address of the service port itself. */
export function loopError(servicePort: string, endpoint: string): KpngError {
  return new KpngError(
    'KPNG_ENDPOINT_LOOP',
    `${servicePort}: the endpoint ${endpoint} loops back to the service itself`,
    { servicePort },
  );
}
