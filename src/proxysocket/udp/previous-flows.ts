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
 * Which endpoints the clients of the old process had. Only for the time in which that one would have ended an idle
 * session; later a client gets a new endpoint.
 */
export class PreviousFlows {
  readonly #clock: Clock;
  readonly #forMs: number;
  #endpoints = getEnvironmentData(NAME) as unknown as Map<string, string> | undefined;
  #until: number | undefined;

  /** `forMs`: how long they count after the first lookup. */
  constructor(clock: Clock, forMs: number) {
    this.#clock = clock;
    this.#forMs = forMs;
  }

  /** The endpoint of a client, as `ip:port`, once; undefined: it had none. */
  take(servicePort: string, { address, port }: ClientAddress): string | undefined {
    if (this.#endpoints === undefined) return undefined;
    const now = this.#clock.now();
    this.#until ??= now + this.#forMs;
    if (now > this.#until) {
      this.#endpoints = undefined;
      return undefined;
    }
    const key = keyOf(servicePort, formatHostPort({ host: address, port }));
    const endpoint = this.#endpoints.get(key);
    this.#endpoints.delete(key);
    return endpoint;
  }
}

function keyOf(servicePort: string, client: string): string {
  return `${servicePort} ${client}`;
}
