import type { Hasher } from '../api/hash.ts';
import { mergePodEndpoints } from './merge-endpoints.ts';
import {
  hintsFor,
  isLocal,
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

type Twins = ReadonlyMap<string, readonly StoredEndpoint[]>;

/** The endpoints of a service that nodes see in the same way, by key, in order of the key. */
export class SharedEndpoints {
  readonly byKey: ReadonlyMap<string, LocalEndpoint>;
  #named: Buffer | undefined;
  #anonymous: Buffer | undefined;

  constructor(selected: ReadonlyMap<string, LocalEndpoint>) {
    this.byKey = inKeyOrder(selected);
  }

  /** The frames that set those with, or those without a pod's name, in one piece. They are kept. */
  frames(named: boolean): Buffer {
    if (named) return (this.#named ??= this.#join(true));
    return (this.#anonymous ??= this.#join(false));
  }

  #join(named: boolean): Buffer {
    const endpoints = [...this.byKey.values()].filter((endpoint) => endpoint.named === named);
    return kept(endpoints.map(({ frame }) => frame));
  }
}

/**
 * What one node sees of the endpoints of a service: what nodes without an endpoint of it see, and
 * how that is different for this node. The first part is one object for all nodes of a zone, so that
 * a change is worked out once for all of them.
 */
export interface View {
  readonly shared: SharedEndpoints;
  /** In place of the shared ones with the same keys; undefined: this node does not see it. */
  readonly own: ReadonlyMap<string, LocalEndpoint | undefined> | undefined;
}

/** Of a service that is not there. */
export const NO_VIEW: View = { shared: new SharedEndpoints(new Map()), own: undefined };

/** From so many endpoints on it pays to keep a list of those of each node. */
const LARGE = 32;

/**
 * The views that the nodes have of one service. What they have in common is worked out once; for a
 * node, only the endpoints that it runs itself are looked at.
 */
export class ServiceViews {
  readonly #policies: Policies;
  readonly #endpoints: readonly StoredEndpoint[];
  readonly #hasher: Hasher;
  readonly #traits: Traits;
  /** Endpoints that share their pod's name with another one, by that name. */
  readonly #twins: Twins | undefined;
  /** By zone, `''` for nodes that zone hints do not matter for. */
  readonly #shared = new Map<string, View>();
  #byNode: ReadonlyMap<string, readonly StoredEndpoint[]> | undefined;

  constructor(policies: Policies, endpoints: readonly StoredEndpoint[], hasher: Hasher) {
    this.#policies = policies;
    this.#hasher = hasher;
    this.#traits = traitsOf(infosOf(endpoints));
    this.#twins = twinsOf(endpoints);
    // Endpoints of one pod are merged, and what comes of it must not depend on how they are sent.
    this.#endpoints = this.#twins === undefined ? endpoints : [...endpoints].sort(byContent);
  }

  of(node: ViewNode): View {
    const hints = hintsFor(this.#traits, node);
    // Hints for this very node leave little in common with others.
    if (hints === 'node')
      return { shared: NO_VIEW.shared, own: this.#select(node, this.#endpoints) };
    const common = this.#common(hints === 'zone' ? node.zone : '');
    const local = this.#withTwins(this.#localTo(node.name));
    if (local.length === 0) return common;
    const own = new Map<string, LocalEndpoint | undefined>();
    const zone = hints === 'zone' ? node.zone : '';
    for (const key of this.#select({ name: '', zone }, local).keys()) own.set(key, undefined);
    for (const [key, endpoint] of this.#select(node, local)) own.set(key, endpoint);
    return { shared: common.shared, own };
  }

  #common(zone: string): View {
    let view = this.#shared.get(zone);
    if (view === undefined) {
      const selected = this.#select({ name: '', zone }, this.#endpoints);
      view = { shared: new SharedEndpoints(selected), own: undefined };
      this.#shared.set(zone, view);
    }
    return view;
  }

  /** What a node sees of some of the endpoints; with one of them comes every other of the same pod. */
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

  /** Addresses of both families of one pod become one endpoint; what cannot be merged stays beside it. */
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

  /** The endpoints and the other ones of their pods, in the order of all. */
  #withTwins(endpoints: readonly StoredEndpoint[]): readonly StoredEndpoint[] {
    const twins = this.#twins;
    if (twins === undefined || endpoints.length === 0) return endpoints;
    const pods = new Set<readonly StoredEndpoint[]>();
    const all: StoredEndpoint[] = [];
    for (const stored of endpoints) {
      const pod = twins.get(stored.info.podName);
      if (pod === undefined) all.push(stored);
      else if (!pods.has(pod)) for (const each of pod) all.push(each);
      if (pod !== undefined) pods.add(pod);
    }
    return all;
  }
}

function inKeyOrder(
  selected: ReadonlyMap<string, LocalEndpoint>,
): ReadonlyMap<string, LocalEndpoint> {
  let last = '';
  for (const key of selected.keys()) {
    if (key < last) return new Map([...selected].sort(([a], [b]) => compareKeys(a, b)));
    last = key;
  }
  return selected;
}

function* infosOf(endpoints: Iterable<StoredEndpoint>): Generator<EndpointInfo, void, undefined> {
  for (const { info } of endpoints) yield info;
}

function twinsOf(endpoints: readonly StoredEndpoint[]): Twins | undefined {
  const firsts = new Map<string, StoredEndpoint>();
  let twins: Map<string, StoredEndpoint[]> | undefined;
  for (const stored of endpoints) {
    const { podName } = stored.info;
    if (podName === '') continue;
    const first = firsts.get(podName);
    if (first === undefined) {
      firsts.set(podName, stored);
      continue;
    }
    twins ??= new Map();
    const pod = twins.get(podName);
    if (pod === undefined) twins.set(podName, [first, stored]);
    else pod.push(stored);
  }
  for (const pod of twins?.values() ?? []) pod.sort(byContent);
  return twins;
}

/** IPv4 before IPv6, and in no other order of meaning, but always the same. */
function byContent(a: StoredEndpoint, b: StoredEndpoint): number {
  return compareKeys(contentOf(a), contentOf(b));
}

function contentOf({ info: { endpoint, topology } }: StoredEndpoint): string {
  const { ips, portOverrides = [], hostname = '' } = endpoint ?? {};
  const ports = portOverrides.map(({ name, port }) => `${name}:${port}`);
  const addresses = [ips?.v4.length === 0 ? '~' : '', ...(ips?.v4 ?? []), ...(ips?.v6 ?? [])];
  return [...addresses, ...ports, hostname, topology?.node ?? ''].join(' ');
}

function byNode(
  endpoints: readonly StoredEndpoint[],
): ReadonlyMap<string, readonly StoredEndpoint[]> {
  const lists = new Map<string, StoredEndpoint[]>();
  for (const stored of endpoints) {
    const node = stored.info.topology?.node ?? '';
    const list = lists.get(node);
    if (list === undefined) lists.set(node, [stored]);
    else list.push(stored);
  }
  return lists;
}
