import type { EndpointInfo, Node, TopologyInfo } from '../api/generated/globalv1/api.ts';
import type { IPSet, Service } from '../api/generated/localv1/api.ts';
import { sortedUnique } from '../store/ip-set.ts';
import type * as raw from './raw.ts';
import { namespaceOf, protocolOf } from './raw.ts';

/** Kubernetes' default, three hours. */
const DEFAULT_AFFINITY_SECONDS = 10_800;

/**
 * The messages for a valid service item. As in kpng, endpoints take namespace and names from their service. The
 * hashes stay 0: only a server for the global API needs them.
 */
export function buildService({ service, endpoints }: raw.RawServiceItem): {
  readonly service: Service;
  readonly endpoints: readonly EndpointInfo[];
} {
  return {
    service: serviceMessage(service, namespaceOf(service)),
    endpoints: (endpoints ?? []).map((each) => buildEndpoint(each, service)),
  };
}

export function buildNode({ name, labels, annotations, topology }: raw.RawNode): Node {
  return {
    name,
    labels: { ...labels },
    annotations: { ...annotations },
    topology: topologyInfo(topology),
  };
}

function serviceMessage(service: raw.RawService, namespace: string): Service {
  const { ips } = service;
  const clientIP = service.sessionaffinity?.clientip ?? undefined;
  const timeoutSeconds = clientIP?.timeoutseconds ?? DEFAULT_AFFINITY_SECONDS;
  return {
    namespace,
    name: service.name,
    type: service.type ?? '',
    ips: ips
      ? {
          clusterIPs: ipSet(ips.clusterips),
          externalIPs: ipSet(ips.externalips),
          headless: ips.headless ?? false,
          loadBalancerIPs: ipSet(ips.loadbalancerips),
        }
      : undefined,
    mapIP: service.mapip ?? false,
    ports: (service.ports ?? []).map((port) => ({
      name: port.name ?? '',
      protocol: protocolOf(port.protocol),
      port: port.port,
      nodePort: port.nodeport ?? 0,
      targetPort: port.targetport ?? 0,
      targetPortName: port.targetportname ?? '',
    })),
    externalTrafficToLocal: service.externaltraffictolocal ?? false,
    labels: { ...service.labels },
    annotations: { ...service.annotations },
    ipFilters: (service.ipfilters ?? []).map((filter) => ({
      targetIPs: ipSet(filter.targetips),
      sourceRanges: [...(filter.sourceranges ?? [])],
    })),
    sessionAffinity: clientIP && { $case: 'clientIP', value: { timeoutSeconds } },
    internalTrafficToLocal: service.internaltraffictolocal ?? false,
    healthCheckNodePort: service.healthchecknodeport ?? 0,
  };
}

export function buildEndpoint(from: raw.RawEndpoint, service: raw.RawService): EndpointInfo {
  const { endpoint, conditions, hints } = from;
  return {
    hash: 0n,
    namespace: namespaceOf(service),
    sourceName: service.name,
    serviceName: service.name,
    endpoint: endpoint
      ? {
          hostname: endpoint.hostname ?? '',
          ips: ipSet(endpoint.ips),
          local: false,
          portOverrides: (endpoint.portoverrides ?? []).map(({ name, port }) => {
            return { name: name ?? '', port };
          }),
          scopes: undefined,
          terminating: undefined,
        }
      : undefined,
    // An absent field means ready, but one without a value means not ready, as in kpng.
    conditions: {
      ready: conditions ? (conditions.ready ?? false) : true,
      serving: conditions?.serving ?? false,
      terminating: conditions?.terminating ?? false,
    },
    podName: from.podname ?? '',
    topology: topologyInfo(from.topology),
    hints: hints
      ? { zones: sortedUnique(hints.zones ?? []), nodes: sortedUnique(hints.nodes ?? []) }
      : undefined,
  };
}

function ipSet(set: raw.RawIPSet | null | undefined): IPSet | undefined {
  return set ? { v4: sortedUnique(set.v4 ?? []), v6: sortedUnique(set.v6 ?? []) } : undefined;
}

function topologyInfo(topology: raw.RawTopology | null | undefined): TopologyInfo | undefined {
  return topology ? { node: topology.node ?? '', zone: topology.zone ?? '' } : undefined;
}
