import type { EndpointInfo } from '../api/generated/globalv1/api.ts';
import type { Endpoint, Service } from '../api/generated/localv1/api.ts';
import type { Hasher } from '../api/hash.ts';
import { comparePaths } from '../api/paths.ts';
import { isEqual } from '../util/equal.ts';
import { listChanges } from '../util/list-changes.ts';
import type { ServiceEntry } from './local-view.ts';
import { rulesOf, traitsOf, type Rules, type Traits, type ViewNode } from './selection.ts';
import { ServiceViews } from './service-views.ts';
import { SortedMap } from './sorted-map.ts';
import type { LocalEndpoint } from './stored.ts';

type Infos = readonly EndpointInfo[];

/** A state of a service, and the node that looks at it. */
export interface Seen {
  readonly service: Service;
  readonly infos: Infos;
  readonly node: ViewNode;
}

/**
 * A service as one node sees it. The endpoints are selected when they are first read: most readers of very many
 * services look at those of few.
 */
export class NodeEntry implements ServiceEntry {
  readonly key: string;
  readonly #seen: Seen;
  readonly #hasher: Hasher;
  #traits: Traits | undefined;
  #endpoints: SortedMap<Endpoint> | undefined;

  constructor(key: string, seen: Seen, hasher: Hasher) {
    this.key = key;
    this.#seen = seen;
    this.#hasher = hasher;
  }

  get service(): Service {
    return this.#seen.service;
  }

  get endpoints(): SortedMap<Endpoint> {
    return (this.#endpoints ??= this.#sorted());
  }

  /** Whether it is the entry of this very state. */
  shows({ service, infos, node }: Seen): boolean {
    const own = this.#seen;
    return own.service === service && own.infos === infos && own.node === node;
  }

  /**
   * The entry of a later state, and how many of the service and its endpoints differ. `isLarge`: only endpoints that a
   * change concerns are evaluated, and the others keep their objects; for few endpoints that takes longer.
   */
  next(seen: Seen, isLarge: boolean): { readonly entry: NodeEntry; readonly differences: number } {
    const entry = new NodeEntry(this.key, seen, this.#hasher);
    const known = this.endpoints;
    let gone = known.keys();
    let updated = seen.infos;
    if (isLarge && isEqual(this.#rules(), entry.#rules())) {
      const { before, after } = concerned(this.#seen.infos, seen.infos);
      gone = this.#select(before).keys();
      updated = after;
    }
    const changes = new Map<string, Endpoint | undefined>();
    for (const each of gone) changes.set(each, undefined);
    for (const [each, { endpoint }] of entry.#select(updated)) {
      if (isEqual(known.get(each), endpoint)) changes.delete(each);
      else changes.set(each, endpoint);
    }
    if (isLarge) entry.#endpoints = known.with(changes);
    const isSameService = isEqual(this.service, seen.service);
    return { entry, differences: changes.size + (isSameService ? 0 : 1) };
  }

  #rules(): Rules {
    const { service, infos, node } = this.#seen;
    this.#traits ??= traitsOf(service, infos);
    return rulesOf(service, this.#traits, node);
  }

  #sorted(): SortedMap<Endpoint> {
    const selected = [...this.#select(this.#seen.infos).values()];
    selected.sort((a, b) => comparePaths(a.key, b.key));
    return new SortedMap(
      selected.map(({ key }) => key),
      selected.map(({ endpoint }) => endpoint),
    );
  }

  /** The node's view of some endpoints of the service, in no order. */
  #select(some: Infos): ReadonlyMap<string, LocalEndpoint> {
    const { service, infos, node } = this.#seen;
    this.#traits ??= traitsOf(service, infos);
    return new ServiceViews(service, some, this.#hasher, this.#traits).endpoints(node);
  }
}

/**
 * Of two lists of endpoints, those that changed, and all that the view may merge with them: those of the same pod, and
 * for endpoints without a pod those of the same address.
 */
function concerned(before: Infos, after: Infos): { readonly before: Infos; readonly after: Infos } {
  const { removed, added } = listChanges(before, after);
  const names = new Set<string>();
  const addresses = new Set<string>();
  let found = added;
  for (let all = [...removed, ...added]; ; all = [...found]) {
    const size = names.size + addresses.size;
    for (const info of all) {
      if (info.podName !== '') names.add(info.podName);
      addresses.add(addressOf(info));
    }
    if (names.size + addresses.size === size) break;
    found = after.filter((each) => names.has(each.podName) || addresses.has(addressOf(each)));
  }
  const isNew = new Set(added);
  return { before: [...removed, ...found.filter((each) => !isNew.has(each))], after: found };
}

function addressOf({ endpoint }: EndpointInfo): string {
  return endpoint?.ips?.v4[0] ?? endpoint?.ips?.v6[0] ?? '';
}
