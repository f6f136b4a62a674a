/** What one node sees of a state, all at once. */
import type { EndpointInfo, Node } from '../../src/api/generated/globalv1/api.ts';
import type { Endpoint, Service } from '../../src/api/generated/localv1/api.ts';
import { loadHasher } from '../../src/api/hash.ts';
import { diffViews } from '../../src/store/local-deltas.ts';
import type { ServiceEntry } from '../../src/store/local-view.ts';
import type { Policies, ViewNode } from '../../src/store/selection.ts';
import { NO_VIEW, ServiceViews } from '../../src/store/service-views.ts';
import { zoneOf } from '../../src/store/stored.ts';

const hasher = await loadHasher();

/** The state of a cluster: services by `namespace/name` with all their endpoints, and nodes by name. */
export interface GlobalState {
  readonly services: ReadonlyMap<
    string,
    { readonly service: Service; readonly endpoints: readonly EndpointInfo[] }
  >;
  readonly nodes: ReadonlyMap<string, Node>;
}

/** The endpoints of a service as one node needs them, by key, in order of the key. */
export function localEndpoints(
  policies: Policies,
  infos: readonly EndpointInfo[],
  node: ViewNode,
): ReadonlyMap<string, Endpoint> {
  const view = new ServiceViews(policies, infos, hasher).of(node);
  const { sets } = diffViews(NO_VIEW, view, () => []);
  return new Map(sets.map(({ key, endpoint }) => [key, endpoint]));
}

/** The services with their endpoints that a node needs, by `namespace/name`. */
export function nodeView(state: GlobalState, nodeName: string): ReadonlyMap<string, ServiceEntry> {
  const node = state.nodes.get(nodeName);
  const viewer = { name: nodeName, zone: node === undefined ? '' : zoneOf(node) };
  return new Map(
    [...state.services].map(([key, { service, endpoints }]) => [
      key,
      { key, service, endpoints: localEndpoints(service, endpoints, viewer) },
    ]),
  );
}
