import {
  CONNECT_ERROR_CAUSES,
  CONNECT_SECONDS_BUCKETS,
  type ConnectErrorCause,
  REJECT_COUNTERS,
  type ServicePortCounters,
} from '../proxysocket/counters.ts';
import type { Engine, ServicePortSnapshot } from '../proxysocket/engine.ts';
import { connectFailed } from '../proxysocket/events.ts';
import type { EndpointSnapshot } from '../proxysocket/inspect.ts';
import type { Subscriptions } from '../util/channel.ts';
import { label, type Families, type Family, type WriteSample } from './exposition.ts';
import { failedListeners } from './service-state.ts';

type Row = Family<ServicePortSnapshot>;
type CounterKey = {
  [Key in keyof ServicePortCounters]: ServicePortCounters[Key] extends number ? Key : never;
}[keyof ServicePortCounters];

function row(type: Row['type']) {
  return <Item>(help: string, write: Family<Item>['write']): Family<Item> => ({
    type,
    help,
    write,
  });
}

const counter = row('counter');
const gauge = row('gauge');
const histogram = row('histogram');

/** A number that is omitted while it is 0. */
function counted(help: string, key: CounterKey): Row {
  return counter(help, ({ counters }, out) => ifAny(counters[key], out));
}

function ifAny(value: number, out: WriteSample, labels = '', exemplar?: string): void {
  if (value !== 0) out(value, labels, '', exemplar);
}

function bothWays([bytesIn, bytesOut]: [number, number], out: WriteSample): void {
  out(bytesIn, 'direction="in"');
  out(bytesOut, 'direction="out"');
}

/**
 * Metrics of each service port. Rarely used ones (errors, retries, histograms) appear once they are not zero, which
 * keeps the page small with ten thousand idle services.
 */
export function servicePortFamilies(exemplars?: Exemplars): Families<ServicePortSnapshot> {
  return {
    kpng_userspace_connections_total: counter(
      'TCP connections accepted and UDP sessions started.',
      ({ counters }, out) => out(counters.connections),
    ),
    kpng_userspace_connections_active: gauge(
      'Open TCP connections and UDP sessions.',
      ({ counters }, out) => out(counters.active),
    ),
    kpng_userspace_bytes_total: counter(
      'Bytes relayed. In: from clients to endpoints.',
      ({ counters: { bytesIn, bytesOut } }, out) => bothWays([bytesIn, bytesOut], out),
    ),
    kpng_userspace_datagrams_total: counter(
      'UDP datagrams relayed. In: from clients to endpoints.',
      ({ protocol, counters: { datagramsIn, datagramsOut } }, out) => {
        if (protocol === 'UDP') bothWays([datagramsIn, datagramsOut], out);
      },
    ),
    kpng_userspace_datagrams_dropped_total: counted(
      'UDP datagrams dropped, in both directions.',
      'datagramsDropped',
    ),
    kpng_userspace_connect_seconds: histogram(
      'Time to connect to an endpoint, for attempts that succeeded.',
      ({ counters: { connectSeconds } }, out) => {
        const total = connectSeconds.counts.reduce((sum, count) => sum + count, 0);
        if (total === 0) return;
        let below = 0;
        for (const [index, bound] of CONNECT_SECONDS_BUCKETS.entries()) {
          below += connectSeconds.counts[index] ?? 0;
          out(below, `le="${bound}"`, '_bucket');
        }
        out(total, 'le="+Inf"', '_bucket');
        out(connectSeconds.sum, '', '_sum');
        out(total, '', '_count');
      },
    ),
    kpng_userspace_connect_errors_total: counter(
      'Failed attempts to connect to an endpoint, by cause.',
      ({ name, counters }, out) => {
        for (const cause of CONNECT_ERROR_CAUSES) {
          const exemplar = exemplars?.of(name, cause);
          ifAny(counters.connectErrors[cause], out, `cause="${cause}"`, exemplar);
        }
      },
    ),
    kpng_userspace_retries_total: counted(
      'Attempts to connect after the first of a connection.',
      'retries',
    ),
    kpng_userspace_rejected_total: counter('Clients refused, by reason.', ({ counters }, out) => {
      for (const [reason, key] of Object.entries(REJECT_COUNTERS))
        ifAny(counters[key], out, `reason="${reason}"`);
    }),
    kpng_userspace_connections_held: gauge(
      'TCP clients held until the service has an endpoint.',
      ({ counters: { held, heldTotal } }, out) => {
        if (held + heldTotal > 0) out(held);
      },
    ),
    kpng_userspace_connections_held_total: counted('TCP clients that were held.', 'heldTotal'),
    kpng_userspace_half_close_timeouts_total: counted(
      'Connections closed because one direction was idle for too long after the other had ended.',
      'halfCloseTimeouts',
    ),
    kpng_userspace_udp_idle_timeouts_total: counted('UDP sessions that timed out.', 'idleTimeouts'),
    kpng_userspace_udp_sessions_evicted_total: counted(
      'UDP sessions evicted to make room for new ones.',
      'sessionsEvicted',
    ),
    kpng_userspace_endpoints: gauge('Endpoints of the service port.', ({ endpoints }, out) =>
      out(endpoints),
    ),
    kpng_userspace_listeners: gauge('Listen addresses, by state.', (servicePort, out) => {
      const failed = failedListeners(servicePort);
      out(servicePort.listeners.length - failed, 'state="listening"');
      ifAny(failed, out, 'state="failed"');
    }),
  };
}

/** Which endpoint of a service port failed last, by cause: exemplars, as OpenMetrics writes them. */
export class Exemplars {
  readonly #failed = new Map<string, Map<ConnectErrorCause, string>>();

  constructor(subscriptions: Subscriptions) {
    subscriptions.on(connectFailed, ({ servicePort, endpoint, cause }) => {
      const byCause = this.#failed.get(servicePort) ?? new Map<ConnectErrorCause, string>();
      byCause.set(cause, `{${label('endpoint', endpoint)}} 1 ${Date.now() / 1000}`);
      this.#failed.set(servicePort, byCause);
    });
  }

  of(servicePort: string, cause: ConnectErrorCause): string | undefined {
    return this.#failed.get(servicePort)?.get(cause);
  }

  keepOnly(names: ReadonlySet<string>): void {
    for (const name of this.#failed.keys()) if (!names.has(name)) this.#failed.delete(name);
  }
}

type Named = Pick<ServicePortSnapshot, 'name' | 'protocol'>;

/** The labels of a service port, from `namespace/name:port` or `namespace/name`. */
export function servicePortLabels({ name, protocol }: Named): string {
  const slash = name.indexOf('/');
  const colon = name.indexOf(':', slash + 1);
  const service = colon === -1 ? name.slice(slash + 1) : name.slice(slash + 1, colon);
  return [
    label('namespace', slash === -1 ? '' : name.slice(0, slash)),
    label('service', service),
    label('port', colon === -1 ? '' : name.slice(colon + 1)),
    `protocol="${protocol}"`,
  ].join(',');
}

export interface CountedEndpoint extends EndpointSnapshot {
  readonly protocol: ServicePortSnapshot['protocol'];
}

/** Endpoints with series at most; the others are left out. */
export const MAX_COUNTED_ENDPOINTS = 20_000;
/** Service ports that are inspected at once: a few milliseconds of work. */
const INSPECTED_AT_ONCE = 100;

export const ENDPOINT_FAMILIES: Families<CountedEndpoint> = {
  kpng_userspace_endpoint_connections_total: counter(
    'TCP connections and UDP sessions started with the endpoint.',
    ({ connections }, out) => out(connections),
  ),
  kpng_userspace_endpoint_connections_active: gauge(
    'Open TCP connections and UDP sessions of the endpoint.',
    ({ active }, out) => out(active),
  ),
  kpng_userspace_endpoint_bytes_total: counter(
    'Bytes relayed. In: from clients to the endpoint.',
    ({ bytesIn, bytesOut }, out) => bothWays([bytesIn, bytesOut], out),
  ),
  kpng_userspace_endpoint_connect_errors_total: counter(
    'Failed attempts to connect to the endpoint.',
    ({ errors }, out) => ifAny(errors, out),
  ),
};

export function endpointLabels({ servicePort, protocol, endpoint }: CountedEndpoint): string {
  return `${servicePortLabels({ name: servicePort, protocol })},${label('endpoint', endpoint)}`;
}

/** The endpoints that have been used, or tried. */
export async function usedEndpoints(
  dataPath: Pick<Engine, 'inspect'>,
  servicePorts: readonly ServicePortSnapshot[],
): Promise<CountedEndpoint[]> {
  const found: CountedEndpoint[] = [];
  const protocols = new Map(servicePorts.map(({ name, protocol }) => [name, protocol]));
  const names = [...protocols.keys()];
  for (let start = 0; start < names.length; start += INSPECTED_AT_ONCE) {
    const some = names.slice(start, start + INSPECTED_AT_ONCE);
    const query = { servicePorts: some, maxConnections: 0 };
    const { endpoints = [] } = (await dataPath.inspect?.(query)) ?? {};
    for (const endpoint of endpoints) {
      if (endpoint.connections + endpoint.errors === 0) continue;
      if (found.length >= MAX_COUNTED_ENDPOINTS) return found;
      found.push({ ...endpoint, protocol: protocols.get(endpoint.servicePort) ?? 'TCP' });
    }
  }
  return found;
}
