import {
  type PortMapping,
  Protocol as WireProtocol,
  type Service,
} from '../api/generated/localv1/api.ts';
import { KpngError } from '../errors.ts';
import type { PortalSpec, Served, ServicePortPortals } from '../portal/portal.ts';
import type {
  AffinitySpec,
  EndpointSpec,
  Protocol,
  ServicePortSpec,
  Traffic,
} from '../proxysocket/spec.ts';
import type { LocalView, ServiceEntry } from '../store/local-view.ts';
import { isPort } from '../util/port-range.ts';
import { readAnnotations } from './annotations.ts';
import { endpointsOf } from './endpoints.ts';
import { portalsOf, serviceAddresses } from './portals.ts';
import {
  MAX_SERVICE_PORTALS,
  MAX_SERVICE_PORTS,
  MAX_SERVICE_ROWS,
  NO_PROBLEMS,
  ServiceProblems,
} from './service-limits.ts';

/** One service port in its desired state: the input of the engine, and its portals. */
export interface DesiredServicePort {
  readonly spec: Omit<ServicePortSpec, 'listen'>;
  /** At least one. */
  readonly portals: readonly PortalSpec[];
  /** Whether internal and external traffic may have different endpoints: a policy is Local. */
  readonly splitTraffic: boolean;
  /** The traffic of clients in the cluster that use an external address, if its policy is Local; absent: `external`. */
  readonly clusterTraffic?: Traffic;
}

/** The service ports and problems of one service. */
export interface Desired {
  readonly ports: readonly DesiredServicePort[];
  /** Its problems. The same service always has the same problems. */
  readonly problems: readonly KpngError[];
}

/** Kubernetes' default of the affinity timeout: three hours. Seconds. */
const DEFAULT_AFFINITY_SECONDS = 10_800;

/** The same objects for very many service ports. */
const NO_AFFINITY: AffinitySpec = { kind: 'none' };
const NOTHING: Desired = { ports: [], problems: NO_PROBLEMS };

/**
 * The service ports of a service. `nodePortsOnly`: its addresses are not served.
 *
 * ExternalName and headless services have none, nor has a port without address and node port. Invalid parts are
 * reported and left out.
 */
export function desiredServicePorts(entry: ServiceEntry, nodePortsOnly = false): Desired {
  const { key, service, endpoints } = entry;
  if (service.type === 'ExternalName' || service.ips?.headless === true) return NOTHING;
  if (service.ports.length === 0) return NOTHING;
  if (key.includes(':')) {
    const message = `${JSON.stringify(key)}: the name of a service cannot contain a colon`;
    return { ...NOTHING, problems: [new KpngError('KPNG_SERVICE_INVALID', message)] };
  }

  const problems = new ServiceProblems(key);
  const addresses = nodePortsOnly ? [] : serviceAddresses(service, problems);
  const affinity = affinityOf(service);
  const options = readAnnotations(service, problems);
  const portNames = new Set(service.ports.map((port) => port.name));
  const seen = new Set<string>();
  const ports: DesiredServicePort[] = [];
  let portalCount = 0;
  let rowCount = 0;
  for (const port of service.ports.slice(0, MAX_SERVICE_PORTS)) {
    const name = port.name === '' ? key : `${key}:${port.name}`;
    const protocol = protocolOf(name, port, problems);
    if (protocol === undefined || !hasValidNumbers(name, port, problems)) continue;
    if (seen.has(name)) {
      problems.add('the service has two ports of this name; only the first one is proxied', name);
      continue;
    }
    seen.add(name);
    const portals = portalsOf(port, protocol, addresses);
    if (portals.length === 0) continue;
    for (const { sourceRanges } of portals) portalCount += Math.max(1, sourceRanges.length);
    rowCount += endpoints.size;
    if (portalCount > MAX_SERVICE_PORTALS || rowCount > MAX_SERVICE_ROWS) continue;
    const resolved = endpointsOf(name, port, entry, portNames, problems);
    ports.push({
      spec: { name, protocol, endpoints: resolved, affinity, ...options[protocol] },
      portals,
      splitTraffic: service.externalTrafficToLocal || service.internalTrafficToLocal,
      ...(service.externalTrafficToLocal && {
        clusterTraffic: service.internalTrafficToLocal ? 'cluster' : 'internal',
      }),
    });
  }
  const leftOut = 'its further ports are left out';
  problems.check('ports', service.ports.length, MAX_SERVICE_PORTS, leftOut);
  const portalText = 'combinations of address, port and source range';
  problems.check(portalText, portalCount, MAX_SERVICE_PORTALS, leftOut);
  problems.check('combinations of endpoint and port', rowCount, MAX_SERVICE_ROWS, leftOut);
  // A copy without the room for 16 more that pushing reserves.
  return { ports: ports.slice(), problems: problems.list() };
}

function protocolOf(
  name: string,
  port: PortMapping,
  problems: ServiceProblems,
): Protocol | undefined {
  if (port.protocol === WireProtocol.TCP) return 'TCP';
  if (port.protocol === WireProtocol.UDP) return 'UDP';
  const what = port.protocol === WireProtocol.SCTP ? 'SCTP' : `protocol ${port.protocol}`;
  const message = `${what} is not supported; the other ports of the service are proxied`;
  problems.add(message, name, 'KPNG_UNSUPPORTED_PROTOCOL');
  return undefined;
}

/** An invalid port excludes the whole service port, an invalid node port only the node port. */
function hasValidNumbers(
  name: string,
  { port, nodePort }: PortMapping,
  problems: ServiceProblems,
): boolean {
  const check = (field: string, value: number): boolean => {
    if (isPort(value)) return true;
    problems.add(`the ${field} ${value} is not a port from 1 to 65535`, name);
    return false;
  };
  if (nodePort !== 0) check('node port', nodePort);
  return check('port', port);
}

function affinityOf(service: Service): AffinitySpec {
  if (service.sessionAffinity?.$case !== 'clientIP') return NO_AFFINITY;
  const { timeoutSeconds } = service.sessionAffinity.value;
  return {
    kind: 'clientIP',
    timeoutSeconds: timeoutSeconds > 0 ? timeoutSeconds : DEFAULT_AFFINITY_SECONDS,
  };
}

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

const ALL_SERVED = { internal: true, external: true, cluster: true };

function servedBy(endpoints: readonly EndpointSpec[]): Served {
  const isServed = (traffic: Traffic): boolean => endpoints.some((each) => each[traffic] === true);
  return {
    internal: isServed('internal'),
    external: isServed('external'),
    cluster: isServed('cluster'),
  };
}

/** The desired service ports, kept up to date service by service. */
export class Wanted {
  readonly #nodePortsOnly: boolean;
  readonly #services = new Map<string, Desired>();
  /** By name. */
  readonly ports = new Map<string, DesiredServicePort>();
  /** Number of endpoints, counted once for each service port. */
  endpoints = 0;

  constructor(nodePortsOnly = false) {
    this.#nodePortsOnly = nodePortsOnly;
  }

  /** Number of services with at least one service port or problem. */
  get services(): number {
    return this.#services.size;
  }

  /** Re-reads a service from the view; it may be gone. */
  refresh(key: string, view: LocalView): Record<'before' | 'after', Desired> {
    const before = this.#services.get(key) ?? NOTHING;
    const entry = view.get(key);
    const after = entry === undefined ? NOTHING : desiredServicePorts(entry, this.#nodePortsOnly);
    for (const { spec } of before.ports) {
      this.endpoints -= spec.endpoints.length;
      this.ports.delete(spec.name);
    }
    for (const port of after.ports) {
      this.ports.set(port.spec.name, port);
      this.endpoints += port.spec.endpoints.length;
    }
    if (after.ports.length === 0 && after.problems.length === 0) this.#services.delete(key);
    else this.#services.set(key, after);
    return { before, after };
  }
}
