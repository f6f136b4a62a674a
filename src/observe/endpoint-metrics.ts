import {
  connectFailed,
  relayEnded,
  relayStarted,
  udpSessionEnded,
  udpSessionStarted,
} from '../proxysocket/events.ts';
import type { ServicePortSnapshot } from '../proxysocket/engine.ts';
import { label, type Family } from './exposition.ts';
import { servicePortLabels } from './service-port-metrics.ts';
import type { Subscriptions } from '../util/channel.ts';

/** The metrics of one endpoint of one service port. */
export interface EndpointCounts {
  readonly servicePort: string;
  readonly protocol: 'TCP' | 'UDP';
  /** `ip:port`. */
  readonly endpoint: string;
  connections: number;
  active: number;
  bytesIn: number;
  bytesOut: number;
  connectErrors: number;
  /** Time of the last event. Milliseconds of the given clock. */
  lastAt: number;
}

/** Maximum number of counted endpoints; above it, the longest idle one is dropped. */
export const MAX_COUNTED_ENDPOINTS = 20_000;
/** An endpoint without events is dropped after this long. Milliseconds. */
export const FORGET_ENDPOINT_MS = 3_600_000;

export const ENDPOINT_FAMILIES: readonly Family<EndpointCounts>[] = [
  {
    name: 'kpng_userspace_endpoint_connections_total',
    type: 'counter',
    help: 'TCP connections and UDP sessions started with the endpoint.',
    write: ({ connections }, labels, out) => out.sample(labels, connections),
  },
  {
    name: 'kpng_userspace_endpoint_connections_active',
    type: 'gauge',
    help: 'Open TCP connections and UDP sessions of the endpoint.',
    write: ({ active }, labels, out) => out.sample(labels, active),
  },
  {
    name: 'kpng_userspace_endpoint_bytes_total',
    type: 'counter',
    help: 'Bytes of TCP connections that have ended. In: from clients to the endpoint.',
    write({ protocol, bytesIn, bytesOut }, labels, out) {
      if (protocol === 'UDP') return;
      out.sample(`${labels},direction="in"`, bytesIn);
      out.sample(`${labels},direction="out"`, bytesOut);
    },
  },
  {
    name: 'kpng_userspace_endpoint_connect_errors_total',
    type: 'counter',
    help: 'Failed attempts to connect to the endpoint.',
    write({ connectErrors }, labels, out) {
      if (connectErrors > 0) out.sample(labels, connectErrors);
    },
  },
];

/** The labels of an endpoint. */
export function endpointLabels({ servicePort, protocol, endpoint }: EndpointCounts): string {
  return `${servicePortLabels({ name: servicePort, protocol })},${label('endpoint', endpoint)}`;
}

/**
 * Counts the traffic of each endpoint, from the events of the data path. Optional, as it makes the data path
 * publish every connection.
 */
export class EndpointBook {
  /** By protocol, service port and endpoint, in order of the last event. */
  readonly #counts = new Map<string, EndpointCounts>();
  readonly #now: () => number;

  /** `now`: milliseconds of a monotonic clock. */
  constructor(subscriptions: Subscriptions, now: () => number = () => performance.now()) {
    this.#now = now;
    subscriptions.on(relayStarted, (event) => this.#begin('TCP', event));
    subscriptions.on(relayEnded, (event) => {
      const counts = this.#of('TCP', event);
      this.#end(counts);
      counts.bytesIn += event.bytesIn;
      counts.bytesOut += event.bytesOut;
    });
    subscriptions.on(udpSessionStarted, (event) => this.#begin('UDP', event));
    subscriptions.on(udpSessionEnded, (event) => this.#end(this.#of('UDP', event)));
    subscriptions.on(connectFailed, (event) => {
      // The event lacks the protocol, but a session that fails has been published before.
      const isSession = this.#counts.has(keyOf('UDP', event));
      this.#of(isSession ? 'UDP' : 'TCP', event).connectErrors += 1;
    });
  }

  /** The endpoints of some service ports. Drops all others, and those idle for long. */
  counts(servicePorts: readonly ServicePortSnapshot[]): EndpointCounts[] {
    const oldest = this.#now() - FORGET_ENDPOINT_MS;
    const active = new Map(servicePorts.map(({ name, counters }) => [name, counters.active]));
    for (const [key, counts] of this.#counts) {
      const activeThere = active.get(counts.servicePort);
      // Connections of a crashed worker, or whose events were dropped, never end.
      if (activeThere === 0) counts.active = 0;
      const isIdle = counts.active === 0 && counts.lastAt < oldest;
      if (activeThere === undefined || isIdle) this.#counts.delete(key);
    }
    return [...this.#counts.values()];
  }

  #begin(protocol: 'TCP' | 'UDP', event: OfEndpoint): void {
    const counts = this.#of(protocol, event);
    counts.connections += 1;
    counts.active += 1;
  }

  /** The connection may have begun before this was subscribed. */
  #end(counts: EndpointCounts): void {
    counts.active = Math.max(0, counts.active - 1);
  }

  #of(protocol: 'TCP' | 'UDP', event: OfEndpoint): EndpointCounts {
    const { servicePort, endpoint } = event;
    const key = keyOf(protocol, event);
    const known = this.#counts.get(key);
    const counts = known ?? { ...NOTHING, protocol, servicePort, endpoint };
    counts.lastAt = this.#now();
    // Moves it to the end of the map.
    this.#counts.delete(key);
    this.#counts.set(key, counts);
    if (known === undefined && this.#counts.size > MAX_COUNTED_ENDPOINTS) {
      const [oldest] = this.#counts.keys();
      if (oldest !== undefined) this.#counts.delete(oldest);
    }
    return counts;
  }
}

interface OfEndpoint {
  readonly servicePort: string;
  readonly endpoint: string;
}

function keyOf(protocol: string, { servicePort, endpoint }: OfEndpoint): string {
  return `${protocol} ${servicePort} ${endpoint}`;
}

const NOTHING = {
  connections: 0,
  active: 0,
  bytesIn: 0,
  bytesOut: 0,
  connectErrors: 0,
  lastAt: 0,
} as const;
