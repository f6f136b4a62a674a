import { isDeepStrictEqual } from 'node:util';
import type { EndpointInfo } from '../api/generated/globalv1/api.ts';
import type { Endpoint, Service } from '../api/generated/localv1/api.ts';
import type { Hasher } from '../api/hash.ts';
import { comparePaths } from '../api/paths.ts';
import { listChanges } from '../util/list-changes.ts';
import type { ServiceEntry } from './local-view.ts';
import type { Rules, ViewNode } from './selection.ts';
import { endpointsIn, ServiceViews } from './service-views.ts';

type Infos = readonly EndpointInfo[];
type Endpoints = ServiceEntry['endpoints'];

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
  readonly entry: ServiceEntry;
  /** How many of the service and its endpoints differ from the previous entry. */
  readonly differences: number;
  readonly #rules: Rules;

  constructor(key: string, seen: Seen, hasher: Hasher, previous?: LargeEntry) {
    const { service, infos, node } = seen;
    this.seen = seen;
    this.#rules = new ServiceViews(service, infos, hasher, []).rules(node);
    const known = previous?.entry.endpoints ?? NO_ENDPOINTS;
    let gone = known.keys();
    let updated = infos;
    if (previous !== undefined && isDeepStrictEqual(this.#rules, previous.#rules)) {
      const { before, after } = concerned(previous.seen.infos, infos);
      gone = select(previous.seen, before, hasher).keys();
      updated = after;
    }
    const changes = new Map<string, Endpoint | undefined>();
    for (const each of gone) changes.set(each, undefined);
    for (const [each, { endpoint }] of select(seen, updated, hasher)) {
      if (isDeepStrictEqual(known.get(each), endpoint)) changes.delete(each);
      else changes.set(each, endpoint);
    }
    const endpoints = changes.size === 0 ? known : changed(known, changes);
    this.entry = { key, service, endpoints };
    const isSameService = isDeepStrictEqual(service, previous?.seen.service);
    this.differences = changes.size + (isSameService ? 0 : 1);
  }

  /** Whether it is the entry of this very state. */
  shows({ service, infos, node }: Seen): boolean {
    const { seen } = this;
    return seen.service === service && seen.infos === infos && seen.node === node;
  }
}

const NO_ENDPOINTS: Endpoints = new Map();

/** The node's view of some endpoints of the service, in no order. */
function select({ service, infos, node }: Seen, some: Infos, hasher: Hasher) {
  return endpointsIn(new ServiceViews(service, infos, hasher, some).of(node));
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

/** A list in order of the key with changes. Undefined: removed. */
function changed(before: Endpoints, changes: ReadonlyMap<string, Endpoint | undefined>): Endpoints {
  const added = [...changes.keys()].filter((key) => !before.has(key)).sort(comparePaths);
  const after = new Map<string, Endpoint>();
  const set = (key: string, endpoint: Endpoint | undefined): void => {
    if (endpoint !== undefined) after.set(key, endpoint);
  };
  let next = 0;
  const addBefore = (key?: string): void => {
    for (let each = added[next]; each !== undefined; each = added[(next += 1)]) {
      if (key !== undefined && comparePaths(each, key) > 0) return;
      set(each, changes.get(each));
    }
  };
  for (const [key, endpoint] of before) {
    addBefore(key);
    set(key, changes.has(key) ? changes.get(key) : endpoint);
  }
  addBefore();
  return after;
}
