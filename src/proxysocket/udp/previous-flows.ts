import { getEnvironmentData, setEnvironmentData } from 'node:worker_threads';
import type { Clock } from '../../util/clock.ts';
import { formatHostPort } from '../../util/host-port.ts';
import type { ClientAddress } from './transport.ts';

/** A UDP session of the process before this one. */
export interface PreviousFlow {
  /** `namespace/name:port`. */
  readonly servicePort: string;
  /** The client's `ip:port`. */
  readonly client: string;
  /** `ip:port` of its endpoint. */
  readonly endpoint: string;
}

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
 * Finds which endpoint a client of the old process had, as `ip:port`, once; undefined: it had none. Only for the time
 * in which the old process would have ended an idle session, `forMs` after the first lookup; later a client gets a new
 * endpoint.
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
