import type { EndpointInfo, Node } from '../api/generated/globalv1/api.ts';
import type { Endpoint } from '../api/generated/localv1/api.ts';
import { comparePaths } from '../api/paths.ts';
import type { GlobalState, GlobalService } from './global-state.ts';
import type { ServiceEntry } from './local-view.ts';
import { mergePodEndpoints } from './merge-endpoints.ts';
import { traitsOf, usesOf, type Policies, type ViewNode } from './selection.ts';

/** Key of an endpoint without a pod: a hash of what the node sees of it. */
export type EndpointKey = (endpoint: Endpoint) => string;

const ZONE_LABEL = 'topology.kubernetes.io/zone';

/** The node of that name as a view needs it. A node that is not in the state has no zone. */
export function viewNode(state: GlobalState, name: string): ViewNode {
  const node = state.nodes.get(name);
  return { name, zone: node === undefined ? '' : zoneOf(node) };
}

/** The node's own topology, or else the label that Kubernetes puts on nodes. */
function zoneOf(node: Node): string {
  const zone = node.topology?.zone ?? '';
  return zone === '' ? (node.labels[ZONE_LABEL] ?? '') : zone;
}

/**
 * The endpoints of one service as one node needs them, by key, in order of the key. Which ones these
 * are, selection.ts decides.
 *
 * The key is the pod's name, or else a hash of what the node sees. Endpoints with the same pod name
 * are one pod's addresses of both families and become one endpoint (in kpng the last one wins).
 */
export function localEndpoints(
  service: Policies,
  infos: readonly EndpointInfo[],
  node: ViewNode,
  endpointKey: EndpointKey,
): ReadonlyMap<string, Endpoint> {
  const useOf = usesOf(service, traitsOf(infos), infos, node);
  const byKey = new Map<string, Endpoint>();
  for (const info of infos) {
    const use = useOf(info);
    if (info.endpoint === undefined || use === undefined) continue;
    addEndpoint(byKey, info.podName, { ...info.endpoint, ...use }, endpointKey);
  }
  return inKeyOrder(byKey);
}

function addEndpoint(
  byKey: Map<string, Endpoint>,
  podName: string,
  endpoint: Endpoint,
  endpointKey: EndpointKey,
): void {
  if (podName === '') {
    byKey.set(endpointKey(endpoint), endpoint);
    return;
  }
  const former = byKey.get(podName);
  const merged = former === undefined ? endpoint : mergePodEndpoints(former, endpoint);
  // What cannot be merged (other ports under the same name, say) is kept beside it.
  if (merged === undefined) byKey.set(endpointKey(endpoint), endpoint);
  else byKey.set(podName, merged);
}

function inKeyOrder(byKey: ReadonlyMap<string, Endpoint>): ReadonlyMap<string, Endpoint> {
  if (byKey.size < 2) return byKey;
  return new Map([...byKey].sort(([a], [b]) => comparePaths(a, b)));
}

/**
 * The endpoints of each service as one node sees them, from one global state to the next. Work is
 * only done for services that are new objects since the last call, or for all of them when the
 * node's zone has changed.
 */
export class NodeView {
  readonly #nodeName: string;
  readonly #endpointKey: EndpointKey;
  #zone = '';
  #views = new WeakMap<GlobalService, ReadonlyMap<string, Endpoint>>();

  constructor(nodeName: string, endpointKey: EndpointKey) {
    this.#nodeName = nodeName;
    this.#endpointKey = endpointKey;
  }

  /** What the node sees of each service, by `namespace/name`. */
  of(state: GlobalState): ReadonlyMap<string, ServiceEntry> {
    const node = viewNode(state, this.#nodeName);
    if (node.zone !== this.#zone) {
      this.#zone = node.zone;
      this.#views = new WeakMap();
    }
    const services = new Map<string, ServiceEntry>();
    for (const [key, global] of state.services) {
      let endpoints = this.#views.get(global);
      if (endpoints === undefined) {
        endpoints = localEndpoints(global.service, global.endpoints, node, this.#endpointKey);
        this.#views.set(global, endpoints);
      }
      services.set(key, { key, service: global.service, endpoints });
    }
    return services;
  }
}
