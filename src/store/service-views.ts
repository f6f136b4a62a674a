import type { EndpointInfo } from '../api/generated/globalv1/api.ts';
import type { Endpoint, PortName, Service } from '../api/generated/localv1/api.ts';
import { hashText, type Hasher } from '../api/hash.ts';
import { kept } from '../util/byte-buffer.ts';
import { isEqual } from '../util/compare.ts';
import { mergeIPSets } from './ip-set.ts';
import {
  hasClusterScope,
  hintsFor,
  isLocal,
  rulesOf,
  traitsOf,
  usesOf,
  type Policies,
  type Traits,
  type ViewNode,
} from './selection.ts';
import { endpointEntry, endpointHash, LocalEndpoint } from './stored.ts';
import { compareKeys } from './table.ts';

type Endpoints = readonly EndpointInfo[];
type PodEndpoints = ReadonlyMap<string, Endpoints>;

/** The endpoints of a service that nodes see in the same way, by key. */
export class SharedEndpoints {
  /** In no order. */
  readonly byKey: ReadonlyMap<string, LocalEndpoint>;
  #named: Buffer | undefined;
  #anonymous: Buffer | undefined;

  constructor(byKey: ReadonlyMap<string, LocalEndpoint>) {
    this.byKey = byKey;
  }

  /** The frames that set endpoints with, or without a pod's name, in one cached piece. */
  frames(named: boolean): Buffer {
    if (named) return (this.#named ??= this.#join(true));
    return (this.#anonymous ??= this.#join(false));
  }

  #join(named: boolean): Buffer {
    const endpoints = [...this.byKey.values()].filter((endpoint) => endpoint.named === named);
    endpoints.sort((a, b) => compareKeys(a.key, b.key));
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

/** Every endpoint that a view has, by key, in no order. */
export function endpointsIn({ shared, own }: View): ReadonlyMap<string, LocalEndpoint> {
  if (own === undefined) return shared.byKey;
  const all = new Map(shared.byKey);
  for (const [key, endpoint] of own) {
    if (endpoint === undefined) all.delete(key);
    else all.set(key, endpoint);
  }
  return all;
}

/** Of an unknown service. */
export const NO_VIEW: View = { shared: new SharedEndpoints(new Map()), own: undefined };

/** From this number of endpoints on, an index of each node's endpoints pays off. */
const LARGE = 32;

/**
 * The nodes' views of one service. What they share is computed once; for each node, only its own endpoints are
 * evaluated.
 */
export class ServiceViews {
  readonly #policies: Policies;
  readonly #endpoints: Endpoints;
  readonly #hasher: Hasher;
  readonly #traits: Traits;
  readonly #areDistinct: boolean;
  /** Endpoints that share their pod's name with another one, by that name. */
  readonly #podEndpoints: PodEndpoints;
  /** By zone; `''` for nodes to which zone hints do not apply; views with the scope `cluster` apart. */
  #shared: Map<string, View> | undefined;
  #byNode: ReadonlyMap<string, Endpoints> | undefined;

  /** `traits`: of all endpoints of the service, if these are only some, which no other one is merged with. */
  constructor(
    policies: Policies,
    endpoints: Endpoints,
    hasher: Hasher,
    traits = traitsOf(policies, endpoints),
  ) {
    this.#policies = policies;
    this.#hasher = hasher;
    this.#traits = traits;
    this.#areDistinct = areDistinct(endpoints);
    this.#podEndpoints = this.#areDistinct ? NO_PODS : podEndpointsOf(endpoints);
    // Endpoints of one pod are merged; the result must not depend on their order.
    this.#endpoints = this.#podEndpoints.size === 0 ? endpoints : [...endpoints].sort(byContent);
  }

  /** Every endpoint of a node's view, by key, in no order: for a single node, as `endpointsIn` of its view. */
  endpoints(node: ViewNode): ReadonlyMap<string, LocalEndpoint> {
    if (this.#areDistinct) return this.#select(node, this.#endpoints);
    return endpointsIn(this.of(node));
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
    const shared = (this.#shared ??= new Map());
    let view = shared.get(key);
    if (view === undefined) {
      view = { shared: new SharedEndpoints(this.#select(node, this.#endpoints)), own: undefined };
      shared.set(key, view);
    }
    return view;
  }

  /** A node's view of some endpoints; each brings all others of its pod. */
  #select(node: ViewNode, endpoints: Endpoints): Map<string, LocalEndpoint> {
    const useOf = usesOf(rulesOf(this.#policies, this.#traits, node));
    const selected = new Map<string, LocalEndpoint>();
    for (const info of endpoints) {
      const use = useOf(info);
      const { endpoint, podName } = info;
      if (use === undefined || endpoint === undefined) continue;
      const local = new LocalEndpoint(info, podName, endpoint, use, this.#hasher);
      const first = local.named ? selected.get(local.key) : undefined;
      // Addresses of both families of one pod become one endpoint; others stay separate.
      const merged = first && mergePodEndpoints(first.endpoint, local.endpoint);
      const added =
        first === undefined
          ? local
          : new LocalEndpoint(info, merged && podName, merged ?? endpoint, use, this.#hasher);
      selected.set(added.key, added);
    }
    return selected;
  }

  #localTo(nodeName: string): Endpoints {
    if (nodeName === '') return [];
    if (this.#endpoints.length < LARGE) {
      return this.#endpoints.filter((info) => isLocal(info, nodeName));
    }
    this.#byNode ??= Map.groupBy(this.#endpoints, ({ topology }) => topology?.node ?? '');
    return this.#byNode.get(nodeName) ?? [];
  }

  /** The endpoints and all others of their pods, in the original order. */
  #withPodEndpoints(endpoints: Endpoints): Endpoints {
    if (this.#podEndpoints.size === 0) return endpoints;
    const pods = new Set(endpoints.map((info) => this.#podEndpoints.get(info.podName) ?? [info]));
    return [...pods].flat();
  }
}

/** Whether each endpoint has the name of a pod for itself, and so a key that no other one can have. */
export function areDistinct(endpoints: Endpoints): boolean {
  if (endpoints.length < 2) return endpoints[0]?.podName !== '';
  const names = new Set(endpoints.map(({ podName }) => podName));
  return names.size === endpoints.length && !names.has('');
}

const NO_PODS: PodEndpoints = new Map();

function podEndpointsOf(endpoints: Endpoints): PodEndpoints {
  const pods = new Map<string, Endpoints>();
  for (const [name, pod] of Map.groupBy(endpoints, ({ podName }) => podName)) {
    if (name !== '' && pod.length > 1) pods.set(name, pod.sort(byContent));
  }
  return pods;
}

/** IPv4 before IPv6; otherwise an arbitrary but fixed order. */
function byContent(a: EndpointInfo, b: EndpointInfo): number {
  return compareKeys(contentOf(a), contentOf(b)) || compareKeys(usabilityOf(a), usabilityOf(b));
}

function usabilityOf({ conditions, hints }: EndpointInfo): string {
  return JSON.stringify([conditions, hints]);
}

function contentOf({ endpoint, topology }: EndpointInfo): string {
  const { ips, portOverrides = [], hostname = '' } = endpoint ?? {};
  const ports = portOverrides.map(({ name, port }) => `${name}:${port}`);
  const addresses = [ips?.v4.length === 0 ? '~' : '', ...(ips?.v4 ?? []), ...(ips?.v6 ?? [])];
  return [...addresses, ...ports, hostname, topology?.node ?? ''].join(' ');
}

/**
 * One endpoint with the addresses and ports of two that belong to the same pod: in Kubernetes the two families of a
 * pod arrive in two slices.
 *
 * Undefined when they cannot be merged: they differ in where they are usable, or have different ports under the same
 * name.
 */
function mergePodEndpoints(a: Endpoint, b: Endpoint): Endpoint | undefined {
  if (a.local !== b.local || !isEqual(a.scopes, b.scopes)) return undefined;
  const portOverrides = mergePorts(a.portOverrides, b.portOverrides);
  if (portOverrides === undefined) return undefined;
  return {
    ...a,
    hostname: a.hostname === '' ? b.hostname : a.hostname,
    ips: mergeIPSets(a.ips, b.ips),
    portOverrides,
  };
}

function mergePorts(a: readonly PortName[], b: readonly PortName[]): PortName[] | undefined {
  const merged = [...a];
  for (const override of b) {
    const same = a.find((other) => other.name === override.name);
    if (same === undefined) merged.push(override);
    else if (same.port !== override.port) return undefined;
  }
  return merged;
}

/**
 * A service with the endpoints of all its sources, such as EndpointSlices, at one moment. Immutable: a change makes a
 * new record, which shares the unchanged parts.
 */
export class ServiceRecord {
  /** Undefined: there are endpoints, but their service does not exist (yet). */
  readonly service: Service | undefined;
  /** Every endpoint, in the order of the sources' names, and within a source in its own order. */
  readonly endpoints: readonly EndpointInfo[];
  #views: ServiceViews | undefined;
  #globalFrames: Buffer | undefined;

  constructor(service?: Service, endpoints: readonly EndpointInfo[] = []) {
    this.service = service;
    this.endpoints = endpoints;
  }

  /** The nodes' views of it, cached; undefined without the service. */
  views(hasher: Hasher): ServiceViews | undefined {
    if (this.service === undefined) return undefined;
    return (this.#views ??= new ServiceViews(this.service, this.endpoints, hasher));
  }

  /** The frames that set its endpoints in the global API, in one cached piece. */
  globalFrames(hasher: Hasher): Buffer {
    const distinct = () => [...new Map(this.inPathOrder(hasher)).values()];
    return (this.#globalFrames ??= kept(distinct().map((e) => endpointEntry(e, hasher).frame)));
  }

  /** Its endpoints in the order of their global paths, by what is particular to each path. */
  inPathOrder(hasher: Hasher): readonly (readonly [string, EndpointInfo])[] {
    return this.endpoints
      .map((info) => [`${info.sourceName}|${hashText(endpointHash(info, hasher))}`, info] as const)
      .sort(([a], [b]) => compareKeys(a, b));
  }

  from(source: string): readonly EndpointInfo[] {
    const found = this.endpoints.filter(({ sourceName }) => sourceName === source);
    return found.length === this.endpoints.length ? this.endpoints : found;
  }

  /** The record with the endpoints of one source replaced; none removes the source. */
  withSource(source: string, endpoints: readonly EndpointInfo[]): ServiceRecord {
    const others = this.endpoints.filter(({ sourceName }) => sourceName !== source);
    if (others.length === 0) return new ServiceRecord(this.service, endpoints);
    const before = others.filter(({ sourceName }) => sourceName < source);
    const merged = [...before, ...endpoints, ...others.slice(before.length)];
    return new ServiceRecord(this.service, merged);
  }
}
