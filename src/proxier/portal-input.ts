import type { Served, ServicePortPortals } from '../portal/portal.ts';
import type { EndpointSpec } from '../proxysocket/spec.ts';
import type { DesiredServicePort } from './wanted.ts';

/** What determines how a portal treats clients without endpoints. */
export interface PortalPolicy {
  /** Whether the portal redirects clients to proxy ports, and so can reject them. */
  readonly redirects: boolean;
  /** Whether the engine holds TCP clients until there is an endpoint. */
  readonly holds: boolean;
  /** Networks (CIDR) of pods, whose traffic to external addresses no policy restricts. */
  readonly podNetworks: readonly string[];
}

/** A portal only learns whether there are endpoints, and only if it redirects and clients are not held. */
export function portalInput(
  { spec, portals: all, splitTraffic, clusterTraffic }: DesiredServicePort,
  { redirects, holds, podNetworks }: PortalPolicy,
): ServicePortPortals {
  const clusterClients = clusterTraffic && { networks: podNetworks, traffic: clusterTraffic };
  const portals =
    clusterClients === undefined
      ? all
      : all.map((each) => (each.traffic === 'external' ? { ...each, clusterClients } : each));
  const servicePort = spec.name;
  if (!redirects) return { servicePort, portals, served: ALL_SERVED, splitTraffic: true };
  const isHeld = holds && spec.protocol === 'TCP';
  const served = isHeld ? ALL_SERVED : servedBy(spec.endpoints);
  return { servicePort, portals, served, splitTraffic };
}

/** All combinations: very many service ports share these objects. */
const SERVED = Array.from({ length: 8 }, (_, bits) => ({
  internal: (bits & 1) > 0,
  external: (bits & 2) > 0,
  cluster: (bits & 4) > 0,
}));
const ALL_SERVED = { internal: true, external: true, cluster: true };

function servedBy(endpoints: readonly EndpointSpec[]): Required<Served> {
  let bits = 0;
  for (const { internal, external, cluster } of endpoints) {
    bits |= (internal ? 1 : 0) | (external ? 2 : 0) | (cluster === true ? 4 : 0);
  }
  return SERVED[bits] ?? ALL_SERVED;
}
