import {
  type PortMapping,
  Protocol as WireProtocol,
  type Service,
} from '../api/generated/localv1/api.ts';
import { KpngError } from '../errors.ts';
import type { PortalSpec } from '../portal/portal.ts';
import type { AffinitySpec, Protocol, ServicePortSpec, Traffic } from '../proxysocket/spec.ts';
import type { LocalView, ServiceEntry } from '../store/local-view.ts';
import { isPort } from '../util/port-range.ts';
import { readAnnotations } from './annotations.ts';
import { endpointsOf, KnownSpecs } from './endpoints.ts';
import { portalsOf, serviceAddresses, type ServiceAddresses } from './portals.ts';
import {
  limitProblems,
  MAX_SERVICE_PORTALS,
  MAX_SERVICE_PORTS,
  MAX_SERVICE_ROWS,
  problemOf,
  tooMany,
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
  /** Results to reuse while a service with very many endpoints does not change. */
  readonly known: Known | undefined;
}

/** Earlier results for endpoints of a service, by the name of the service port. */
export interface Known {
  /** Valid for this service only. */
  readonly service: Service;
  readonly ports: Map<string, KnownSpecs>;
}

/** From this many endpoints on, results are kept for the next change. */
const KNOWN_FROM = 1000;

/** Kubernetes' default of the affinity timeout: three hours. Seconds. */
const DEFAULT_AFFINITY_SECONDS = 10_800;

/** The same objects for very many service ports. */
const NO_AFFINITY: AffinitySpec = { kind: 'none' };
const NO_PROBLEMS: readonly KpngError[] = [];
const NOTHING: Desired = { ports: [], problems: NO_PROBLEMS, known: undefined };
const NO_ADDRESSES: ServiceAddresses = { addresses: [], problems: [] };

/** `namespace/name:port`, or `namespace/name` for an unnamed port. */
function servicePortName(key: string, portName: string): string {
  return portName === '' ? key : `${key}:${portName}`;
}

/**
 * The service ports of a service. Pure. `previous`: the last results. `nodePortsOnly`: its addresses are not served.
 *
 * ExternalName and headless services have none, nor has a port without address and node port. Invalid parts are
 * reported and left out.
 */
export function desiredServicePorts(
  entry: ServiceEntry,
  previous?: Known,
  nodePortsOnly = false,
): Desired {
  const { key, service } = entry;
  if (service.type === 'ExternalName' || service.ips?.headless === true) return NOTHING;
  if (service.ports.length === 0) return NOTHING;
  if (key.includes(':')) {
    const message = `${JSON.stringify(key)}: the name of a service cannot contain a colon`;
    return { ...NOTHING, problems: [new KpngError('KPNG_SERVICE_INVALID', message)] };
  }

  const { addresses, problems: addressProblems } = nodePortsOnly
    ? NO_ADDRESSES
    : serviceAddresses(key, service);
  const problems: KpngError[] = [...addressProblems];
  const affinity = affinityOf(service);
  const { options, problems: annotationProblems } = readAnnotations(service);
  for (const message of annotationProblems) problems.push(problemOf(key, message));
  const portNames = new Set(service.ports.map((port) => port.name));
  const seen = new Set<string>();
  const ports: DesiredServicePort[] = [];
  const known = knownOf(entry, previous);
  let portalCount = 0;
  let rowCount = 0;
  for (const port of service.ports.slice(0, MAX_SERVICE_PORTS)) {
    const name = servicePortName(key, port.name);
    const protocol = protocolOf(name, port, problems);
    if (protocol === undefined || !hasValidNumbers(name, port, problems)) continue;
    if (seen.has(name)) {
      const message = 'the service has two ports of this name; only the first one is proxied';
      problems.push(problemOf(name, message));
      continue;
    }
    seen.add(name);
    const portals = portalsOf(port, protocol, addresses);
    if (portals.length === 0) continue;
    for (const { sourceRanges } of portals) portalCount += Math.max(1, sourceRanges.length);
    rowCount += entry.endpoints.size;
    if (portalCount > MAX_SERVICE_PORTALS || rowCount > MAX_SERVICE_ROWS) continue;
    const specs = known && specsOf(known, name);
    const resolved = endpointsOf(name, port, entry, portNames, specs);
    problems.push(...resolved.problems);
    ports.push({
      spec: { name, protocol, endpoints: resolved.endpoints, affinity, ...options[protocol] },
      portals,
      splitTraffic: service.externalTrafficToLocal || service.internalTrafficToLocal,
      ...(service.externalTrafficToLocal && {
        clusterTraffic: service.internalTrafficToLocal ? 'cluster' : 'internal',
      }),
    });
  }
  const tooLarge = (what: string, count: number, limit: number): void => {
    if (count <= limit) return;
    problems.push(tooMany(key, what, count, limit, 'its further ports are left out'));
  };
  tooLarge('ports', service.ports.length, MAX_SERVICE_PORTS);
  tooLarge('combinations of address, port and source range', portalCount, MAX_SERVICE_PORTALS);
  tooLarge('combinations of endpoint and port', rowCount, MAX_SERVICE_ROWS);
  // A copy without the room for 16 more that pushing reserves.
  if (problems.length === 0) return { ports: ports.slice(), problems: NO_PROBLEMS, known };
  return { ports, problems: limitProblems(key, problems), known };
}

function specsOf({ ports }: Known, name: string): KnownSpecs {
  const specs = ports.get(name) ?? new KnownSpecs();
  ports.set(name, specs);
  return specs;
}

function knownOf({ service, endpoints }: ServiceEntry, previous?: Known): Known | undefined {
  if (endpoints.size < KNOWN_FROM) return undefined;
  return previous?.service === service ? previous : { service, ports: new Map() };
}

function protocolOf(name: string, port: PortMapping, problems: KpngError[]): Protocol | undefined {
  if (port.protocol === WireProtocol.TCP) return 'TCP';
  if (port.protocol === WireProtocol.UDP) return 'UDP';
  const what = port.protocol === WireProtocol.SCTP ? 'SCTP' : `protocol ${port.protocol}`;
  const message = `${what} is not supported; the other ports of the service are proxied`;
  problems.push(problemOf(name, message, 'KPNG_UNSUPPORTED_PROTOCOL'));
  return undefined;
}

/** An invalid port excludes the whole service port, an invalid node port only the node port. */
function hasValidNumbers(name: string, port: PortMapping, problems: KpngError[]): boolean {
  const invalid = (field: string, value: number): void => {
    problems.push(problemOf(name, `the ${field} ${value} is not a port from 1 to 65535`));
  };
  if (port.nodePort !== 0 && !isPort(port.nodePort)) invalid('node port', port.nodePort);
  if (isPort(port.port)) return true;
  invalid('port', port.port);
  return false;
}

function affinityOf(service: Service): AffinitySpec {
  if (service.sessionAffinity?.$case !== 'clientIP') return NO_AFFINITY;
  const { timeoutSeconds } = service.sessionAffinity.value;
  return {
    kind: 'clientIP',
    timeoutSeconds: timeoutSeconds > 0 ? timeoutSeconds : DEFAULT_AFFINITY_SECONDS,
  };
}

/** The desired service ports, kept up to date service by service. */
export class Wanted {
  readonly #nodePortsOnly: boolean;
  readonly #services = new Map<string, Desired>();
  readonly #ports = new Map<string, DesiredServicePort>();
  readonly ports: ReadonlyMap<string, DesiredServicePort> = this.#ports;
  #endpoints = 0;

  constructor(nodePortsOnly = false) {
    this.#nodePortsOnly = nodePortsOnly;
  }

  /** Services with at least one service port or problem. */
  get services(): number {
    return this.#services.size;
  }

  /** Endpoints, counted once for each service port. */
  get endpoints(): number {
    return this.#endpoints;
  }

  /** Re-reads a service from the view; it may be gone. */
  refresh(key: string, view: LocalView): Record<'before' | 'after', Desired> {
    const before = this.#services.get(key) ?? NOTHING;
    const entry = view.get(key);
    const after =
      entry === undefined ? NOTHING : desiredServicePorts(entry, before.known, this.#nodePortsOnly);
    for (const { spec } of before.ports) {
      this.#endpoints -= spec.endpoints.length;
      this.#ports.delete(spec.name);
    }
    for (const port of after.ports) {
      this.#ports.set(port.spec.name, port);
      this.#endpoints += port.spec.endpoints.length;
    }
    if (after.ports.length === 0 && after.problems.length === 0) this.#services.delete(key);
    else this.#services.set(key, after);
    return { before, after };
  }
}
