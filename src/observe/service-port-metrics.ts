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
import { familiesOf, type Family, label, type WriteSample } from './exposition.ts';
import { ENDPOINT_METRICS, SERVICE_PORT_METRICS } from './metric-table.ts';
import { failedListeners, partsOf } from './service-state.ts';

type CounterKey = {
  [Key in keyof ServicePortCounters]: ServicePortCounters[Key] extends number ? Key : never;
}[keyof ServicePortCounters];

/** Writes a counter that is omitted while it is 0. */
function counted(key: CounterKey): Family<ServicePortSnapshot>['write'] {
  return ({ counters }, out) => ifAny(counters[key], out);
}

function ifAny(value: number, out: WriteSample, labels = '', exemplar?: string): void {
  if (value !== 0) out(value, labels, '', exemplar);
}

function bothWays(out: WriteSample, into: number, back: number): void {
  out(into, 'direction="in"');
  out(back, 'direction="out"');
}

/**
 * Metrics of each service port. Rarely used ones (errors, retries, histograms) appear once they are not zero, which
 * keeps the page small with ten thousand idle services.
 */
export function servicePortFamilies(exemplars?: Exemplars): Family<ServicePortSnapshot>[] {
  return familiesOf(SERVICE_PORT_METRICS, {
    connections_total: ({ counters }, out) => out(counters.connections),
    connections_active: ({ counters }, out) => out(counters.active),
    bytes_total: ({ counters }, out) => bothWays(out, counters.bytesIn, counters.bytesOut),
    datagrams_total: ({ protocol, counters: { datagramsIn, datagramsOut } }, out) => {
      if (protocol === 'UDP') bothWays(out, datagramsIn, datagramsOut);
    },
    datagrams_dropped_total: counted('datagramsDropped'),
    connect_seconds: ({ counters: { connectSeconds } }, out) => {
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
    connect_errors_total: ({ name, counters }, out) => {
      for (const cause of CONNECT_ERROR_CAUSES) {
        const exemplar = exemplars?.of(name, cause);
        ifAny(counters.connectErrors[cause], out, `cause="${cause}"`, exemplar);
      }
    },
    retries_total: counted('retries'),
    rejected_total: ({ counters }, out) => {
      for (const [reason, key] of Object.entries(REJECT_COUNTERS))
        ifAny(counters[key], out, `reason="${reason}"`);
    },
    connections_held: ({ counters: { held, heldTotal } }, out) => {
      if (held + heldTotal > 0) out(held);
    },
    connections_held_total: counted('heldTotal'),
    half_close_timeouts_total: counted('halfCloseTimeouts'),
    udp_idle_timeouts_total: counted('idleTimeouts'),
    udp_sessions_evicted_total: counted('sessionsEvicted'),
    endpoints: ({ endpoints }, out) => out(endpoints),
    listeners: (servicePort, out) => {
      const failed = failedListeners(servicePort);
      out(servicePort.listeners.length - failed, 'state="listening"');
      ifAny(failed, out, 'state="failed"');
    },
  });
}

export type Exemplars = ReturnType<typeof exemplarsOf>;

/** Which endpoint of a service port failed last, by cause: exemplars, as OpenMetrics writes them. */
export function exemplarsOf(subscriptions: Subscriptions) {
  const failed = new Map<string, Partial<Record<ConnectErrorCause, string>>>();
  subscriptions.on(connectFailed, ({ servicePort, endpoint, cause }) => {
    const exemplar = `{${label('endpoint', endpoint)}} 1 ${Date.now() / 1000}`;
    failed.set(servicePort, { ...failed.get(servicePort), [cause]: exemplar });
  });
  return {
    of: (servicePort: string, cause: ConnectErrorCause) => failed.get(servicePort)?.[cause],
    keepOnly(names: ReadonlySet<string>): void {
      for (const name of failed.keys()) if (!names.has(name)) failed.delete(name);
    },
  };
}

type Named = Pick<ServicePortSnapshot, 'name' | 'protocol'>;

/** The labels of a service port, from `namespace/name:port` or `namespace/name`. */
export function servicePortLabels({ name, protocol }: Named): string {
  const [, namespace = '', service = '', port = ''] = NAME.exec(name) ?? [];
  return [
    label('namespace', namespace),
    label('service', service),
    label('port', port),
    `protocol="${protocol}"`,
  ].join(',');
}

const NAME = /^(?:([^/]*)\/)?([^:]*)(?::(.*))?$/s;

export interface CountedEndpoint extends EndpointSnapshot {
  readonly protocol: ServicePortSnapshot['protocol'];
}

/** Endpoints with series at most; the others are left out. */
export const MAX_COUNTED_ENDPOINTS = 20_000;
/** Service ports that are inspected at once: a few milliseconds of work. */
const INSPECTED_AT_ONCE = 100;

export const ENDPOINT_FAMILIES: readonly Family<CountedEndpoint>[] = familiesOf(ENDPOINT_METRICS, {
  endpoint_connections_total: ({ connections }, out) => out(connections),
  endpoint_connections_active: ({ active }, out) => out(active),
  endpoint_bytes_total: ({ bytesIn, bytesOut }, out) => bothWays(out, bytesIn, bytesOut),
  endpoint_connect_errors_total: ({ errors }, out) => ifAny(errors, out),
});

export function endpointLabels({ servicePort, protocol, endpoint }: CountedEndpoint): string {
  return `${servicePortLabels({ name: servicePort, protocol })},${label('endpoint', endpoint)}`;
}

/** The endpoints that have been used, or tried. */
export async function usedEndpoints(
  engine: Required<Pick<Engine, 'inspect'>>,
  servicePorts: readonly ServicePortSnapshot[],
): Promise<CountedEndpoint[]> {
  const found: CountedEndpoint[] = [];
  const protocols = new Map(servicePorts.map(({ name, protocol }) => [name, protocol]));
  for (const names of partsOf([...protocols.keys()], INSPECTED_AT_ONCE)) {
    const { endpoints } = await engine.inspect({ servicePorts: names, maxConnections: 0 });
    for (const endpoint of endpoints) {
      if (endpoint.connections + endpoint.errors === 0) continue;
      if (found.length >= MAX_COUNTED_ENDPOINTS) return found;
      found.push({ ...endpoint, protocol: protocols.get(endpoint.servicePort) ?? 'TCP' });
    }
  }
  return found;
}
