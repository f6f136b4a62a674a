import type { EndpointInfo, Node, TopologyInfo } from '../api/generated/globalv1/api.ts';
import {
  Protocol,
  type Endpoint,
  type IPSet,
  type PortMapping,
  type Service,
  type ServiceIPs,
} from '../api/generated/localv1/api.ts';
import { servicePath } from '../api/paths.ts';
import type { GlobalService } from '../store/global-state.ts';
import { sortedUnique } from '../store/ip-set.ts';
import type {
  RawEndpoint,
  RawIPSet,
  RawNode,
  RawPort,
  RawService,
  RawServiceItem,
  RawTopology,
} from './raw.ts';

/** Kubernetes' default, three hours. */
const DEFAULT_AFFINITY_SECONDS = 10_800;

/** The service's namespace, with the default of state files. */
export function namespaceOf(service: RawService): string {
  const namespace = service.namespace ?? '';
  return namespace === '' ? 'default' : namespace;
}

/**
 * The messages for a valid service item. As in kpng the endpoints take namespace and names from
 * their service. The hashes stay 0: only a server for the global API needs them.
 */
export function buildService({ service, endpoints }: RawServiceItem): GlobalService {
  const namespace = namespaceOf(service);
  return {
    key: servicePath(namespace, service.name),
    service: serviceMessage(service, namespace),
    endpoints: (endpoints ?? []).map((raw) => endpointInfo(raw, namespace, service.name)),
  };
}

/** The message for a valid node. */
export function buildNode(raw: RawNode): Node {
  return {
    name: raw.name,
    labels: { ...raw.labels },
    annotations: { ...raw.annotations },
    topology: topologyMessage(raw.topology),
  };
}

function serviceMessage(raw: RawService, namespace: string): Service {
  const clientIP = raw.sessionaffinity?.clientip ?? undefined;
  return {
    namespace,
    name: raw.name,
    type: raw.type ?? '',
    ips: serviceIPs(raw.ips),
    mapIP: raw.mapip ?? false,
    ports: (raw.ports ?? []).map(portMapping),
    externalTrafficToLocal: raw.externaltraffictolocal ?? false,
    labels: { ...raw.labels },
    annotations: { ...raw.annotations },
    ipFilters: (raw.ipfilters ?? []).map((filter) => ({
      targetIPs: ipSet(filter.targetips),
      sourceRanges: [...(filter.sourceranges ?? [])],
    })),
    sessionAffinity:
      clientIP === undefined
        ? undefined
        : {
            $case: 'clientIP',
            value: { timeoutSeconds: clientIP.timeoutseconds ?? DEFAULT_AFFINITY_SECONDS },
          },
    internalTrafficToLocal: raw.internaltraffictolocal ?? false,
    healthCheckNodePort: raw.healthchecknodeport ?? 0,
  };
}

function serviceIPs(raw: RawService['ips']): ServiceIPs | undefined {
  if (isAbsent(raw)) return undefined;
  return {
    clusterIPs: ipSet(raw.clusterips),
    externalIPs: ipSet(raw.externalips),
    headless: raw.headless ?? false,
    loadBalancerIPs: ipSet(raw.loadbalancerips),
  };
}

function ipSet(raw: RawIPSet | null | undefined): IPSet | undefined {
  if (isAbsent(raw)) return undefined;
  return { v4: sortedUnique(raw.v4 ?? []), v6: sortedUnique(raw.v6 ?? []) };
}

const PROTOCOLS: Readonly<Record<string, Protocol>> = {
  TCP: Protocol.TCP,
  UDP: Protocol.UDP,
  SCTP: Protocol.SCTP,
};

/** The number of a protocol; TCP unless given. */
export function protocolOf(raw: RawPort['protocol']): Protocol {
  if (isAbsent(raw)) return Protocol.TCP;
  return typeof raw === 'number' ? raw : (PROTOCOLS[raw] ?? Protocol.UnknownProtocol);
}

function portMapping(raw: RawPort): PortMapping {
  return {
    name: raw.name ?? '',
    protocol: protocolOf(raw.protocol),
    port: raw.port,
    nodePort: raw.nodeport ?? 0,
    targetPort: raw.targetport ?? 0,
    targetPortName: raw.targetportname ?? '',
  };
}

function endpointInfo(raw: RawEndpoint, namespace: string, serviceName: string): EndpointInfo {
  const { conditions, hints } = raw;
  return {
    hash: 0n,
    namespace,
    sourceName: serviceName,
    serviceName,
    endpoint: endpointMessage(raw.endpoint),
    // Left out means ready, but written without a value means not ready, as in kpng.
    conditions: {
      ready: isAbsent(conditions) ? true : (conditions.ready ?? false),
      serving: conditions?.serving ?? false,
      terminating: conditions?.terminating ?? false,
    },
    podName: raw.podname ?? '',
    topology: topologyMessage(raw.topology),
    hints: isAbsent(hints)
      ? undefined
      : { zones: sortedUnique(hints.zones ?? []), nodes: sortedUnique(hints.nodes ?? []) },
  };
}

function endpointMessage(raw: RawEndpoint['endpoint']): Endpoint | undefined {
  if (isAbsent(raw)) return undefined;
  return {
    hostname: raw.hostname ?? '',
    ips: ipSet(raw.ips),
    local: false,
    portOverrides: (raw.portoverrides ?? []).map(({ name, port }) => ({ name: name ?? '', port })),
    scopes: undefined,
  };
}

function topologyMessage(raw: RawTopology | null | undefined): TopologyInfo | undefined {
  return isAbsent(raw) ? undefined : { node: raw.node ?? '', zone: raw.zone ?? '' };
}

function isAbsent(value: unknown): value is null | undefined {
  return value === undefined || value === null;
}
