import type { Engine, ServicePortSnapshot } from '../proxysocket/engine.ts';
import type { EndpointSnapshot } from '../proxysocket/inspect.ts';
import { label, type Families } from './exposition.ts';
import { servicePortLabels } from './service-port-metrics.ts';

/** An endpoint of a service port, with its figures. */
export interface CountedEndpoint extends EndpointSnapshot {
  readonly protocol: ServicePortSnapshot['protocol'];
}

/** Endpoints with series at most; the others are left out. */
export const MAX_COUNTED_ENDPOINTS = 20_000;
/** Service ports that are inspected at once: a few milliseconds of work. */
const INSPECTED_AT_ONCE = 100;

export const ENDPOINT_FAMILIES: Families<CountedEndpoint> = {
  kpng_userspace_endpoint_connections_total: {
    type: 'counter',
    help: 'TCP connections and UDP sessions started with the endpoint.',
    write: ({ connections }, labels, out) => out.sample(labels, connections),
  },
  kpng_userspace_endpoint_connections_active: {
    type: 'gauge',
    help: 'Open TCP connections and UDP sessions of the endpoint.',
    write: ({ active }, labels, out) => out.sample(labels, active),
  },
  kpng_userspace_endpoint_bytes_total: {
    type: 'counter',
    help: 'Bytes relayed. In: from clients to the endpoint.',
    write({ bytesIn, bytesOut }, labels, out) {
      out.sample(`${labels},direction="in"`, bytesIn);
      out.sample(`${labels},direction="out"`, bytesOut);
    },
  },
  kpng_userspace_endpoint_connect_errors_total: {
    type: 'counter',
    help: 'Failed attempts to connect to the endpoint.',
    write({ errors }, labels, out) {
      if (errors > 0) out.sample(labels, errors);
    },
  },
};

/** The labels of an endpoint. */
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
