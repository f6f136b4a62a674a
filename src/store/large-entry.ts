import { isDeepStrictEqual } from 'node:util';
import type { EndpointInfo } from '../api/generated/globalv1/api.ts';
import type { Endpoint, Service } from '../api/generated/localv1/api.ts';
import type { Hasher } from '../api/hash.ts';
import { listChanges } from '../util/list-changes.ts';
import type { ServiceEntry } from './local-view.ts';
import { rulesOf, traitsOf, type Rules, type Traits, type ViewNode } from './selection.ts';
import { ServiceViews } from './service-views.ts';
import { SortedMap } from './sorted-map.ts';
import type { LocalEndpoint } from './stored.ts';

type Infos = readonly EndpointInfo[];

/** A service as one node sees it. */
export interface Seen {
  readonly service: Service;
  readonly infos: Infos;
  readonly node: ViewNode;
}

/**
 * The entry of a service with very many endpoints. The next one is made from it: only endpoints that a change concerns
 * are evaluated, and the others keep their objects.
 */
export class LargeEntry {
  readonly seen: Seen;
  readonly entry: ServiceEntry & { readonly endpoints: SortedMap<Endpoint> };
  /** How many of the service and its endpoints differ from the previous entry. */
  readonly differences: number;
  readonly #traits: Traits;
  readonly #rules: Rules;

  constructor(key: string, seen: Seen, hasher: Hasher, previous?: LargeEntry) {
    const { service, infos, node } = seen;
    this.seen = seen;
    this.#traits = traitsOf(service, infos);
    this.#rules = rulesOf(service, this.#traits, node);
    const known = previous?.entry.endpoints ?? NO_ENDPOINTS;
    let gone = known.keys();
    let updated = infos;
    if (previous !== undefined && isDeepStrictEqual(this.#rules, previous.#rules)) {
      const { before, after } = concerned(previous.seen.infos, infos);
      gone = previous.#select(before, hasher).keys();
      updated = after;
    }
    const changes = new Map<string, Endpoint | undefined>();
    for (const each of gone) changes.set(each, undefined);
    for (const [each, { endpoint }] of this.#select(updated, hasher)) {
      if (isDeepStrictEqual(known.get(each), endpoint)) changes.delete(each);
      else changes.set(each, endpoint);
    }
    this.entry = { key, service, endpoints: known.with(changes) };
    const isSameService = isDeepStrictEqual(service, previous?.seen.service);
    this.differences = changes.size + (isSameService ? 0 : 1);
  }

  /** Whether it is the entry of this very state. */
  shows({ service, infos, node }: Seen): boolean {
    const { seen } = this;
    return seen.service === service && seen.infos === infos && seen.node === node;
  }

  /** The node's view of some endpoints of the service, in no order. */
  #select(some: Infos, hasher: Hasher): ReadonlyMap<string, LocalEndpoint> {
    const { service, node } = this.seen;
    return new ServiceViews(service, some, hasher, this.#traits).endpoints(node);
  }
}

const NO_ENDPOINTS = new SortedMap<Endpoint>();

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
