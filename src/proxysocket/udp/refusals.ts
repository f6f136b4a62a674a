import { formatHostPort } from '../../util/host-port.ts';
import type { Clock } from '../../util/clock.ts';
import type { RejectReason } from '../counters.ts';
import { countRejected, type ServicePort } from '../core/service-port.ts';
import type { ClientAddress } from './transport.ts';

/** Refused clients that are remembered in each of two sets, so that each is reported once. */
export const MAX_REFUSED_CLIENTS = 2048;

/**
 * Counts and reports clients that get no session. Each of their datagrams counts as dropped, but a client port counts
 * as rejected, and causes an event, only once during the life of a session. It is remembered in two sets, of which
 * the older one is dropped when the younger one is full or has expired.
 */
export class Refusals {
  readonly #clock: Clock;
  readonly #windowMs: number;
  #recent = new Set<string>();
  #previous = new Set<string>();
  #since: number;

  constructor(clock: Clock, windowMs: number) {
    this.#clock = clock;
    this.#windowMs = windowMs;
    this.#since = clock.now();
  }

  /** Refuses a client's datagrams, usually one. */
  refuse(owner: ServicePort, client: ClientAddress, reason: RejectReason, datagrams = 1): void {
    owner.counters.datagramsDropped += datagrams;
    const remoteAddress = formatHostPort({ host: client.address, port: client.port });
    if (this.#known(`${reason} ${remoteAddress} ${owner.name}`)) return;
    countRejected(owner, reason, { remoteAddress });
  }

  #known(key: string): boolean {
    const now = this.#clock.now();
    if (this.#recent.size >= MAX_REFUSED_CLIENTS || now - this.#since >= this.#windowMs) {
      this.#previous = now - this.#since < 2 * this.#windowMs ? this.#recent : new Set();
      this.#recent = new Set();
      this.#since = now;
    }
    if (this.#recent.has(key)) return true;
    this.#recent.add(key);
    return this.#previous.has(key);
  }
}
