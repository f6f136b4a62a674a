import type { EndpointInfo, Node, TopologyInfo } from '../api/generated/globalv1/api.ts';
import type { IPSet, Service } from '../api/generated/localv1/api.ts';
import { servicePath } from '../api/paths.ts';
import type { GlobalStore, GlobalTransaction } from '../store/global-store.ts';
import { sortedUnique } from '../store/ip-set.ts';
import type { ParsedState } from './parse.ts';
import type { Part } from './parser-thread.ts';
import type { ItemPatch } from './patch.ts';
import type * as raw from './raw.ts';
import { namespaceOf, protocolOf } from './raw.ts';

/**
 * Writes the changes to a store that has no other source, in steps. The endpoints of a service are one source, named
 * after the service as in kpng.
 */
export function* writeChanges(
  { services, nodes }: GlobalStore,
  transaction: GlobalTransaction,
  parts: Part[],
  parsed: ParsedState,
): Generator<void, void, undefined> {
  const keys = new Set<string>();
  // Their texts are not needed any more once they are written.
  for (let part = parts.shift(); part !== undefined; part = parts.shift()) {
    for (const text of part) keys.add(writeItem(transaction, JSON.parse(text) as never));
    yield;
  }
  const others = (): string[] => [...services.current.keys()].filter((key) => !keys.has(key));
  for (const key of parsed.reset ? others() : parsed.removed) {
    const service = services.get(key)?.service;
    if (service === undefined) continue;
    const { namespace, name } = service;
    transaction.setSource({ namespace, name, serviceName: name, endpoints: [] });
    transaction.setService(key, undefined);
    yield;
  }
  if (parsed.nodesText !== undefined) {
    const given = (JSON.parse(parsed.nodesText) as readonly raw.RawNode[]).map(buildNode);
    const names = new Set(given.map(({ name }) => name));
    for (const key of nodes.current.keys())
      if (!names.has(key)) transaction.setNode(key, undefined);
    for (const node of given) transaction.setNode(node.name, node);
  }
  transaction.setComplete();
}

/** Writes a service item; returns its key. */
export function writeItem(
  transaction: GlobalTransaction,
  item: raw.RawServiceItem | ItemPatch,
): string {
  const service = buildService(item.service);
  const { namespace, name } = service;
  const key = servicePath(namespace, name);
  transaction.setService(key, service);
  const parts = 'patch' in item ? item.patch : (item.endpoints ?? []);
  const endpoints = parts.map((part) =>
    'from' in part ? part : buildEndpoint(part, item.service),
  );
  transaction.setSource({ namespace, name, serviceName: name, endpoints });
  return key;
}

/** Kubernetes' default, three hours. */
const DEFAULT_AFFINITY_SECONDS = 10_800;

export function buildNode({ name, labels, annotations, topology }: raw.RawNode): Node {
  return {
    name,
    labels: { ...labels },
    annotations: { ...annotations },
    topology: topologyInfo(topology),
  };
}

/** The message for a service of a valid item. */
export function buildService(service: raw.RawService): Service {
  const { ips } = service;
  const clientIP = service.sessionaffinity?.clientip ?? undefined;
  const timeoutSeconds = clientIP?.timeoutseconds ?? DEFAULT_AFFINITY_SECONDS;
  return {
    namespace: namespaceOf(service),
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

/** As in kpng, endpoints take namespace and names from their service. The hash stays 0: only a server for the global API needs it. */
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
