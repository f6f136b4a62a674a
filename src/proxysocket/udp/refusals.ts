import { formatHostPort } from '../../util/host-port.ts';
import type { Clock } from '../../util/clock.ts';
import type { RejectReason } from '../counters.ts';
import { countRejected, type ServicePort } from '../core/service-port.ts';
import type { ClientAddress } from './transport.ts';

/** Refused clients that are remembered in each of two sets, so that each is reported once. */
export const MAX_REFUSED_CLIENTS = 2048;

/** Refuses a client's datagrams, usually one. */
export type Refuse = (
  owner: ServicePort,
  client: ClientAddress,
  reason: RejectReason,
  datagrams?: number,
) => void;

/**
 * Counts and reports clients that get no session. Each of their datagrams counts as dropped, but a client port counts
 * as rejected, and causes an event, only once during the life of a session. It is remembered in two sets, of which
 * the older one is dropped when the younger one is full or has expired.
 */
export function refusals(clock: Clock, windowMs: number): Refuse {
  let [recent, previous] = [new Set<string>(), new Set<string>()];
  let since = clock.now();
  const isKnown = (key: string): boolean => {
    const now = clock.now();
    if (recent.size >= MAX_REFUSED_CLIENTS || now - since >= windowMs) {
      previous = now - since < 2 * windowMs ? recent : new Set();
      recent = new Set();
      since = now;
    }
    if (recent.has(key)) return true;
    recent.add(key);
    return previous.has(key);
  };
  return (owner, client, reason, datagrams = 1) => {
    owner.counters.datagramsDropped += datagrams;
    const remoteAddress = formatHostPort({ host: client.address, port: client.port });
    if (isKnown(`${reason} ${remoteAddress} ${owner.name}`)) return;
    countRejected(owner, reason, { remoteAddress });
  };
}
