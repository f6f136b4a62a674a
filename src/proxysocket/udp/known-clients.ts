import { getEnvironmentData, setEnvironmentData } from 'node:worker_threads';
import type { Clock } from '../../util/clock.ts';
import { formatHostPort } from '../../util/host-port.ts';
import type { ConnectionSnapshot } from '../inspect.ts';
import type { ClientAddress } from './transport.ts';
import type { RejectReason } from '../counters.ts';
import { countRejected, type ServicePort } from '../core/service-port.ts';

/** A session of the process before this one. */
export type PreviousFlow = Pick<ConnectionSnapshot, 'servicePort' | 'client' | 'endpoint'>;

const NAME = 'kpng-userspace previous UDP flows';

/** Keeps them for sessions that begin, in any thread; already running threads do not get them. */
export function keepPreviousFlows(flows: readonly PreviousFlow[]): void {
  if (flows.length === 0) return;
  setEnvironmentData(
    NAME,
    new Map(
      flows.map(({ servicePort, client, endpoint }) => [keyOf(servicePort, client), endpoint]),
    ),
  );
}

/** Forgets them, except in existing engines: later threads find none. */
export function forgetPreviousFlows(): void {
  setEnvironmentData(NAME, undefined);
}

/**
 * Finds which endpoint a client of the old process had, as `ip:port`, once; undefined: none. Only until `forMs` after
 * the first lookup, when the old process would have ended an idle session.
 */
export function previousFlows(
  clock: Clock,
  forMs: number,
): (servicePort: string, client: ClientAddress) => string | undefined {
  let endpoints = getEnvironmentData(NAME) as unknown as Map<string, string> | undefined;
  let until: number | undefined;
  return (servicePort, { address, port }) => {
    if (endpoints === undefined) return undefined;
    const now = clock.now();
    until ??= now + forMs;
    if (now > until) {
      endpoints = undefined;
      return undefined;
    }
    const key = keyOf(servicePort, formatHostPort({ host: address, port }));
    const endpoint = endpoints.get(key);
    endpoints.delete(key);
    return endpoint;
  };
}

function keyOf(servicePort: string, client: string): string {
  return `${servicePort} ${client}`;
}

/** Refused clients that are remembered in each of two sets, so that each is reported once. */
export const MAX_REFUSED_CLIENTS = 2048;

/**
 * Counts and reports clients that get no session. Each of their datagrams counts as dropped, but a client port counts
 * as rejected, and causes an event, only once during the life of a session. It is remembered in two sets, of which
 * the older one is dropped when the younger one is full or has expired.
 */
export function refusals(clock: Clock, windowMs: number) {
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
  return (owner: ServicePort, client: ClientAddress, reason: RejectReason, datagrams = 1): void => {
    owner.counters.datagramsDropped += datagrams;
    const remoteAddress = formatHostPort({ host: client.address, port: client.port });
    if (isKnown(`${reason} ${remoteAddress} ${owner.name}`)) return;
    countRejected(owner, reason, { remoteAddress });
  };
}
