/**
 * Which endpoints of a service one node uses, and for which traffic. Pure rules over the endpoints of one service.
 *
 * They are kube-proxy's rules. Where kpng's differ, see docs/reference/differences.md.
 */
import type { EndpointInfo } from '../api/generated/globalv1/api.ts';
import type { EndpointScopes, Service } from '../api/generated/localv1/api.ts';

/** The node that a view is for. */
export interface ViewNode {
  /** Empty: no particular node. Then no endpoint is local. */
  readonly name: string;
  /** Empty: unknown. Then zone hints are not used. */
  readonly zone: string;
  /** Whether the view has endpoints that only clients in the cluster may use. Default: no. */
  readonly clusterScope?: boolean;
}

/** The two traffic policies: whether that traffic only goes to endpoints on the client's node. */
export type Policies = Pick<Service, 'internalTrafficToLocal' | 'externalTrafficToLocal'>;

/** How one node uses one endpoint; one shared object per combination. */
export interface Use {
  readonly local: boolean;
  readonly scopes: EndpointScopes;
  /** True: it is not ready, but serves while it terminates. */
  readonly terminating: true | undefined;
}

/** What the endpoints of a service have in common, computed once for all nodes. */
export interface Traits {
  /** Whether any endpoint is ready. If none is, those that serve while they terminate are used. */
  readonly anyReady: boolean;
  /** Zones that hints name; undefined unless every ready endpoint has hints for zones. */
  readonly zones: ReadonlySet<string> | undefined;
  /** Nodes that hints name; undefined unless every ready endpoint has hints for nodes. */
  readonly nodes: ReadonlySet<string> | undefined;
  /** Nodes with a ready endpoint; empty if no policy is Local, as it does not matter then. */
  readonly readyNodes: ReadonlySet<string>;
}

/** Absent conditions mean ready. */
export function isReady(info: EndpointInfo): boolean {
  return info.conditions?.ready ?? true;
}

/** Whether the endpoint may be used when no other is ready. */
export function servesWhileTerminating(info: EndpointInfo): boolean {
  return info.conditions?.serving === true && info.conditions.terminating;
}

export function traitsOf(policies: Policies, infos: readonly EndpointInfo[]): Traits {
  const isLocalOnly = policies.internalTrafficToLocal || policies.externalTrafficToLocal;
  return {
    anyReady: infos.some(isReady),
    zones: namesInHints(infos, 'zones'),
    nodes: namesInHints(infos, 'nodes'),
    readyNodes: isLocalOnly
      ? new Set(infos.filter(isReady).map(({ topology }) => topology?.node ?? ''))
      : NO_NODES,
  };
}

const NO_NODES = new Set<string>();

function namesInHints(
  infos: readonly EndpointInfo[],
  kind: 'zones' | 'nodes',
): Set<string> | undefined {
  let names: Set<string> | undefined;
  for (const info of infos) {
    if (!isReady(info)) continue;
    const hints = info.hints?.[kind] ?? [];
    if (hints.length === 0) return undefined;
    names ??= new Set();
    for (const hint of hints) names.add(hint);
  }
  return names;
}

/**
 * Which hints apply to a node: those for nodes if they name it, else those for zones if they name its zone, else
 * none, so that hints never leave a node without endpoints.
 */
export function hintsFor(traits: Traits, node: ViewNode): Rules['hints'] {
  if (node.name !== '' && traits.nodes?.has(node.name) === true) return 'node';
  return node.zone !== '' && traits.zones?.has(node.zone) === true ? 'zone' : 'none';
}

export function isLocal(info: EndpointInfo, nodeName: string): boolean {
  return nodeName !== '' && info.topology?.node === nodeName;
}

/** What decides, besides the endpoint, how a node uses it: if these are equal, it uses an endpoint in the same way. */
export interface Rules extends Policies {
  readonly anyReady: boolean;
  /** Whether an endpoint on the node is ready; false if no policy is Local. */
  readonly anyLocalReady: boolean;
  readonly hints: 'node' | 'zone' | 'none';
  readonly node: ViewNode;
}

export function rulesOf(policies: Policies, traits: Traits, node: ViewNode): Rules {
  const { internalTrafficToLocal, externalTrafficToLocal } = policies;
  const { anyReady, readyNodes } = traits;
  const anyLocalReady = node.name !== '' && readyNodes.has(node.name);
  const hints = hintsFor(traits, node);
  return { internalTrafficToLocal, externalTrafficToLocal, anyReady, anyLocalReady, hints, node };
}

/**
 * How a node uses the endpoints of a service.
 *
 * 1. Traffic with the policy Local goes to the local endpoints that are ready, or if there are none, to the
 * local ones that serve while they terminate.
 * 2. Other traffic goes to the ready endpoints that hints allow (see `hintsFor`), or if none
 * is ready, to all that serve while they terminate.
 * 3. Clients in the cluster that use an external address are other traffic (the scope `cluster`).
 */
export function usesOf(rules: Rules): (info: EndpointInfo) => Use | undefined {
  const { internalTrafficToLocal, externalTrafficToLocal, node } = rules;
  const withCluster = hasClusterScope(rules, node);
  return (info) => {
    const ready = isReady(info);
    const local = isLocal(info, node.name);
    const nearby = local && (rules.anyLocalReady ? ready : servesWhileTerminating(info));
    const anywhere = rules.anyReady
      ? ready && isHinted(info, rules.hints, node)
      : servesWhileTerminating(info);
    const internal = internalTrafficToLocal ? nearby : anywhere;
    const external = externalTrafficToLocal ? nearby : anywhere;
    const cluster = withCluster ? anywhere : undefined;
    if (!internal && !external && cluster !== true) return undefined;
    return useOf(local, { internal, external, cluster }, ready ? undefined : true);
  };
}

function isHinted(info: EndpointInfo, hints: Rules['hints'], node: ViewNode): boolean {
  if (hints === 'none') return true;
  const named = hints === 'node' ? info.hints?.nodes : info.hints?.zones;
  return named?.includes(hints === 'node' ? node.name : node.zone) ?? false;
}

/** Whether the view of a node has the scope `cluster`: if neither policy is Cluster, no other scope is equivalent. */
export function hasClusterScope(policies: Policies, { clusterScope }: ViewNode): boolean {
  const { internalTrafficToLocal, externalTrafficToLocal } = policies;
  return clusterScope === true && internalTrafficToLocal && externalTrafficToLocal;
}

const uses: Use[] = [];

function useOf(local: boolean, scopes: EndpointScopes, terminating: true | undefined): Use {
  const { internal, external, cluster } = scopes;
  let index = (local ? 1 : 0) + (internal ? 2 : 0) + (external ? 4 : 0) + (terminating ? 8 : 0);
  if (cluster !== undefined) index += cluster ? 16 : 32;
  return (uses[index] ??= { local, scopes, terminating });
}
