import type { Hasher } from '../api/hash.ts';
import { mergePodEndpoints } from './merge-endpoints.ts';
import {
  hasClusterScope,
  hintsFor,
  isLocal,
  isReady,
  traitsOf,
  usesOf,
  type Policies,
  type Traits,
  type Use,
  type ViewNode,
} from './selection.ts';
import { LocalEndpoint, type StoredEndpoint } from './stored.ts';
import { compareKeys } from './table.ts';
import { kept } from '../util/kept.ts';
import type { EndpointInfo } from '../api/generated/globalv1/api.ts';

type PodEndpoints = ReadonlyMap<string, readonly StoredEndpoint[]>;

/** The endpoints of a service that nodes see in the same way, by key. */
export class SharedEndpoints {
  /** In no order. */
  readonly byKey: ReadonlyMap<string, LocalEndpoint>;
  readonly #keysSince: ReadonlySet<string> | undefined;
  readonly #since: WeakRef<SharedEndpoints> | undefined;
  #named: Buffer | undefined;
  #anonymous: Buffer | undefined;

  /** `since`: the previous ones, which differ in no other keys than `keys`. */
  constructor(
    selected: ReadonlyMap<string, LocalEndpoint>,
    since?: SharedEndpoints,
    keys?: ReadonlySet<string>,
  ) {
    this.byKey = selected;
    this.#since = since && new WeakRef(since);
    this.#keysSince = keys;
  }

  /** The keys that may differ from older ones; undefined: any. */
  keysSince(older: SharedEndpoints): ReadonlySet<string> | undefined {
    return this.#since?.deref() === older ? this.#keysSince : undefined;
  }

  /** In order of the key. */
  sorted(): LocalEndpoint[] {
    return [...this.byKey.values()].sort((a, b) => compareKeys(a.key, b.key));
  }

  /** The frames that set endpoints with, or without a pod's name, in one cached piece. */
  frames(named: boolean): Buffer {
    if (named) return (this.#named ??= this.#join(true));
    return (this.#anonymous ??= this.#join(false));
  }

  #join(named: boolean): Buffer {
    const endpoints = this.sorted().filter((endpoint) => endpoint.named === named);
    return kept(endpoints.map(({ frame }) => frame));
  }
}

/**
 * What one node sees of a service's endpoints: what nodes without an endpoint of it see, and how this node differs.
 * The first part is one object for all nodes of a zone, so that a change is computed once for all of them.
 */
export interface View {
  readonly shared: SharedEndpoints;
  /** Replaces the shared ones with the same keys; undefined: this node does not see the endpoint. */
  readonly own: ReadonlyMap<string, LocalEndpoint | undefined> | undefined;
}

/** Of an unknown service. */
export const NO_VIEW: View = { shared: new SharedEndpoints(new Map()), own: undefined };

/** From this number of endpoints on, an index of each node's endpoints pays off. */
const LARGE = 32;

/** The endpoints that a change removes and adds. */
export interface EndpointsChange {
  readonly removed: readonly StoredEndpoint[];
  readonly added: readonly StoredEndpoint[];
}

/** The same, and the previous views. */
export interface ViewsChange extends EndpointsChange {
  readonly views: ServiceViews;
}

/**
 * The nodes' views of one service. What they share is computed once; for each node, only its own endpoints are
 * evaluated.
 */
export class ServiceViews {
  readonly #policies: Policies;
  readonly #endpoints: readonly StoredEndpoint[];
  readonly #hasher: Hasher;
  readonly #traits: Traits;
  /** Endpoints that share their pod's name with another one, by that name. */
  readonly #podEndpoints: PodEndpoints | undefined;
  /** By zone; `''` for nodes to which zone hints do not apply; views with the scope `cluster` apart. */
  readonly #shared = new Map<string, View>();
  #byNode: ReadonlyMap<string, readonly StoredEndpoint[]> | undefined;
  /** Passed on to the views after a change. */
  #census: Census | undefined;

  /** `change`: from the previous state. With it, a change of few endpoints is cheap regardless of the total. */
  constructor(
    policies: Policies,
    endpoints: readonly StoredEndpoint[],
    hasher: Hasher,
    change?: ViewsChange,
  ) {
    this.#policies = policies;
    this.#hasher = hasher;
    if (change !== undefined && change.views.#policies === policies) {
      const census = change.views.#takeCensus();
      if (census?.take(change) === true) {
        this.#census = census;
        this.#endpoints = endpoints;
        this.#traits = { anyReady: census.ready > 0, zones: undefined, nodes: undefined };
        this.#updateFrom(change.views, change);
        return;
      }
    }
    this.#traits = traitsOf(infosOf(endpoints));
    this.#podEndpoints = podEndpointsOf(endpoints);
    // Endpoints of one pod are merged; the result must not depend on their order.
    this.#endpoints = this.#podEndpoints === undefined ? endpoints : [...endpoints].sort(byContent);
  }

  #takeCensus(): Census | undefined {
    const census =
      this.#census ?? (this.#podEndpoints === undefined ? Census.of(this.#endpoints) : undefined);
    this.#census = undefined;
    return census;
  }

  /** Reuses previous results except for the changes. */
  #updateFrom(before: ServiceViews, { removed, added }: EndpointsChange): void {
    const common = before.#shared.get('');
    if (common !== undefined && this.#traits.anyReady === before.#traits.anyReady) {
      const byKey = new Map(common.shared.byKey);
      const keys = new Set<string>();
      for (const key of this.#select(NO_NODE, removed).keys()) {
        byKey.delete(key);
        keys.add(key);
      }
      for (const [key, endpoint] of this.#select(NO_NODE, added)) {
        byKey.set(key, endpoint);
        keys.add(key);
      }
      const shared = new SharedEndpoints(byKey, common.shared, keys);
      this.#shared.set('', { shared, own: undefined });
    }
    if (before.#byNode === undefined) return;
    const lists = new Map(before.#byNode);
    const gone = new Set(removed);
    for (const node of new Set(removed.map(nodeOf))) {
      lists.set(node, lists.get(node)?.filter((stored) => !gone.has(stored)) ?? []);
    }
    for (const [node, list] of byNode(added))
      lists.set(node, [...(lists.get(node) ?? []), ...list]);
    this.#byNode = lists;
  }

  of(node: ViewNode): View {
    const hints = hintsFor(this.#traits, node);
    // With hints for this very node, little is shared with others.
    if (hints === 'node')
      return { shared: NO_VIEW.shared, own: this.#select(node, this.#endpoints) };
    const elsewhere = { ...node, name: '', zone: hints === 'zone' ? node.zone : '' };
    const common = this.#common(elsewhere);
    const local = this.#withPodEndpoints(this.#localTo(node.name));
    if (local.length === 0) return common;
    const own = new Map<string, LocalEndpoint | undefined>();
    for (const key of this.#select(elsewhere, local).keys()) own.set(key, undefined);
    for (const [key, endpoint] of this.#select(node, local)) own.set(key, endpoint);
    return { shared: common.shared, own };
  }

  #common(node: ViewNode): View {
    const key = hasClusterScope(this.#policies, node) ? `${node.zone} cluster` : node.zone;
    let view = this.#shared.get(key);
    if (view === undefined) {
      view = { shared: new SharedEndpoints(this.#select(node, this.#endpoints)), own: undefined };
      this.#shared.set(key, view);
    }
    return view;
  }

  /** A node's view of some endpoints; each brings all others of its pod. */
  #select(node: ViewNode, endpoints: readonly StoredEndpoint[]): Map<string, LocalEndpoint> {
    const useOf = usesOf(this.#policies, this.#traits, infosOf(endpoints), node);
    const selected = new Map<string, LocalEndpoint>();
    for (const stored of endpoints) {
      const use = useOf(stored.info);
      const { endpoint } = stored.info;
      if (use === undefined || endpoint === undefined) continue;
      const local = stored.local(use, endpoint, this.#hasher);
      const first = local.named ? selected.get(local.key) : undefined;
      const added = first === undefined ? local : this.#merge(stored, first, local, use);
      selected.set(added.key, added);
    }
    return selected;
  }

  /** Addresses of both families of one pod become one endpoint; others stay separate. */
  #merge(
    { info }: StoredEndpoint,
    first: LocalEndpoint,
    second: LocalEndpoint,
    use: Use,
  ): LocalEndpoint {
    const merged = mergePodEndpoints(first.endpoint, second.endpoint);
    const [podName, endpoint] = merged === undefined ? ['', second.endpoint] : [first.key, merged];
    return new LocalEndpoint(info, podName, endpoint, use, this.#hasher);
  }

  #localTo(nodeName: string): readonly StoredEndpoint[] {
    if (nodeName === '') return [];
    if (this.#endpoints.length < LARGE) {
      return this.#endpoints.filter(({ info }) => isLocal(info, nodeName));
    }
    this.#byNode ??= byNode(this.#endpoints);
    return this.#byNode.get(nodeName) ?? [];
  }

  /** The endpoints and all others of their pods, in the original order. */
  #withPodEndpoints(endpoints: readonly StoredEndpoint[]): readonly StoredEndpoint[] {
    const podEndpoints = this.#podEndpoints;
    if (podEndpoints === undefined || endpoints.length === 0) return endpoints;
    const pods = new Set<readonly StoredEndpoint[]>();
    const all: StoredEndpoint[] = [];
    for (const stored of endpoints) {
      const pod = podEndpoints.get(stored.info.podName);
      if (pod === undefined) all.push(stored);
      else if (!pods.has(pod)) for (const each of pod) all.push(each);
      if (pod !== undefined) pods.add(pod);
    }
    return all;
  }
}

/** Stands for nodes without an endpoint of the service, in no zone. */
const NO_NODE: ViewNode = { name: '', zone: '' };

/**
 * Facts about all endpoints of a service, for a change of a few. Unavailable if endpoints have hints or share a pod's
 * name or an address: then a change may affect others.
 */
class Census {
  readonly #names: Set<string>;
  ready: number;

  private constructor(names: Set<string>, ready: number) {
    this.#names = names;
    this.ready = ready;
  }

  static of(endpoints: readonly StoredEndpoint[]): Census | undefined {
    const census = new Census(new Set(), 0);
    return census.take({ removed: [], added: endpoints }) ? census : undefined;
  }

  /** False: the census is no longer valid. */
  take({ removed, added }: EndpointsChange): boolean {
    for (const { info } of removed) {
      this.#names.delete(distinctName(info));
      if (isReady(info)) this.ready -= 1;
    }
    for (const { info } of added) {
      const name = distinctName(info);
      if (info.hints !== undefined || this.#names.has(name)) return false;
      this.#names.add(name);
      if (isReady(info)) this.ready += 1;
    }
    return true;
  }
}

function distinctName({ podName, endpoint }: EndpointInfo): string {
  return podName === '' ? `/${endpoint?.ips?.v4[0] ?? ''}/${endpoint?.ips?.v6[0] ?? ''}` : podName;
}

function* infosOf(endpoints: Iterable<StoredEndpoint>): Generator<EndpointInfo, void, undefined> {
  for (const { info } of endpoints) yield info;
}

function podEndpointsOf(endpoints: readonly StoredEndpoint[]): PodEndpoints | undefined {
  const firsts = new Map<string, StoredEndpoint>();
  let podEndpoints: Map<string, StoredEndpoint[]> | undefined;
  for (const stored of endpoints) {
    const { podName } = stored.info;
    if (podName === '') continue;
    const first = firsts.get(podName);
    if (first === undefined) {
      firsts.set(podName, stored);
      continue;
    }
    podEndpoints ??= new Map();
    const pod = podEndpoints.get(podName);
    if (pod === undefined) podEndpoints.set(podName, [first, stored]);
    else pod.push(stored);
  }
  for (const pod of podEndpoints?.values() ?? []) pod.sort(byContent);
  return podEndpoints;
}

/** IPv4 before IPv6; otherwise an arbitrary but fixed order. */
function byContent(a: StoredEndpoint, b: StoredEndpoint): number {
  return compareKeys(contentOf(a), contentOf(b));
}

function contentOf({ info: { endpoint, topology } }: StoredEndpoint): string {
  const { ips, portOverrides = [], hostname = '' } = endpoint ?? {};
  const ports = portOverrides.map(({ name, port }) => `${name}:${port}`);
  const addresses = [ips?.v4.length === 0 ? '~' : '', ...(ips?.v4 ?? []), ...(ips?.v6 ?? [])];
  return [...addresses, ...ports, hostname, topology?.node ?? ''].join(' ');
}

function nodeOf({ info }: StoredEndpoint): string {
  return info.topology?.node ?? '';
}

function byNode(
  endpoints: readonly StoredEndpoint[],
): ReadonlyMap<string, readonly StoredEndpoint[]> {
  const lists = new Map<string, StoredEndpoint[]>();
  for (const stored of endpoints) {
    const node = nodeOf(stored);
    const list = lists.get(node);
    if (list === undefined) lists.set(node, [stored]);
    else list.push(stored);
  }
  return lists;
}
