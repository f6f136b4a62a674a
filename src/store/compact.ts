import { isDeepStrictEqual } from 'node:util';
import type {
  EndpointConditions,
  EndpointInfo,
  TopologyInfo,
} from '../api/generated/globalv1/api.ts';
import type { Endpoint } from '../api/generated/localv1/api.ts';

/** The names shared by all endpoints of a source. */
export interface SourceNames {
  readonly namespace: string;
  readonly serviceName: string;
}

/** Topology of endpoints, each value kept once: there are many more endpoints than topologies. */
export class Topologies {
  readonly #topologies = new Map<string, TopologyInfo>();

  /** The same topology, as the same object. */
  share(topology: TopologyInfo): TopologyInfo {
    const key = `${topology.node} ${topology.zone}`;
    const known = this.#topologies.get(key);
    if (known !== undefined) return known;
    // Nodes come and go; current ones are added again at once.
    if (this.#topologies.size >= MAX_TOPOLOGIES) this.#topologies.clear();
    this.#topologies.set(key, topology);
    return topology;
  }
}

const MAX_TOPOLOGIES = 50_000;

/** The most common one. */
const READY: EndpointConditions = { ready: true, serving: false, terminating: false };

/**
 * The same endpoint, sharing equal parts with the previous one: in a large cluster, copies would take most of the
 * memory. Its hash is left out; the store computes its own.
 */
export function compacted(
  info: EndpointInfo,
  { namespace, serviceName }: SourceNames,
  previous: EndpointInfo | undefined,
  topologies: Topologies,
): EndpointInfo {
  const { conditions, topology } = info;
  return {
    hash: 0n,
    namespace,
    sourceName: previous?.sourceName === info.sourceName ? previous.sourceName : info.sourceName,
    serviceName,
    endpoint: info.endpoint && compactEndpoint(info.endpoint, previous?.endpoint),
    conditions: isUsual(conditions) ? READY : conditions,
    podName: info.podName,
    topology: topology && topologies.share(topology),
    hints: isDeepStrictEqual(info.hints, previous?.hints) ? previous?.hints : info.hints,
  };
}

function compactEndpoint(endpoint: Endpoint, previous: Endpoint | undefined): Endpoint {
  const { portOverrides } = endpoint;
  if (previous === undefined || !isDeepStrictEqual(portOverrides, previous.portOverrides)) {
    return endpoint;
  }
  return { ...endpoint, portOverrides: previous.portOverrides };
}

function isUsual(conditions: EndpointConditions | undefined): boolean {
  return conditions?.ready === true && !conditions.serving && !conditions.terminating;
}
