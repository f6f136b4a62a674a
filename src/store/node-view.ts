import { setImmediate } from 'node:timers/promises';
import type { EndpointInfo } from '../api/generated/globalv1/api.ts';
import type { Endpoint, Service } from '../api/generated/localv1/api.ts';
import type { Hasher } from '../api/hash.ts';
import { comparePaths } from '../api/paths.ts';
import { isEqual, listChanges } from '../util/compare.ts';
import { put } from './change-set.ts';
import type { GlobalStore } from './global-store.ts';
import type { Pin } from './history.ts';
import type { Side } from './local-deltas.ts';
import type { LocalChange, LocalView, ServiceEntry } from './local-view.ts';
import { rulesOf, traitsOf, type Rules, type Traits, type ViewNode } from './selection.ts';
import type { ServiceRecord } from './service-record.ts';
import { ServiceViews } from './service-views.ts';
import { SortedMap } from './sorted-map.ts';
import type { LocalEndpoint } from './stored.ts';
import { sorter } from './table.ts';

/** A large change yields to other work after this long. Milliseconds. */
const TURN_MS = 10;

/** From this number of endpoints on, the last entry of a service is kept: the next one is made from it. */
const LARGE = 1000;

/**
 * One node's view of a store, for a sink within this process. Entries are read from the store, at the revision of the
 * last change set.
 */
export class NodeView implements LocalView {
  readonly #store: GlobalStore;
  readonly #name: string;
  readonly #clusterScope: boolean;
  #pin: Pin | undefined;
  #node: ViewNode;
  #size = 0;
  readonly #large = new Map<string, NodeEntry>();
  readonly #byPath = sorter<ServiceRecord>((a, b) => comparePaths(a.key, b.key));

  /** `nodeName` empty: no particular node. `clusterScope`: whether the sink knows the scope `cluster`. */
  constructor(store: GlobalStore, nodeName: string, clusterScope: boolean) {
    this.#store = store;
    this.#name = nodeName;
    this.#clusterScope = clusterScope;
    this.#node = { name: nodeName, zone: '' };
  }

  get size(): number {
    return this.#size;
  }

  get(key: string): ServiceEntry | undefined {
    const record = this.#store.services.at(key, this.#revision);
    return this.#entry(key, { record, node: this.#node });
  }

  *entries(): Generator<ServiceEntry, void, undefined> {
    for (const cell of this.#byPath(this.#store.services.cells())) {
      const entry = this.#entry(cell.key, { record: cell.at(this.#revision), node: this.#node });
      if (entry !== undefined) yield entry;
    }
  }

  /**
   * Moves on to the newest state. Undefined before the store is synced, and when nothing differs for the node. The
   * first change set may be empty. `operations`: how many changes of services and endpoints it has.
   */
  async next(): Promise<(LocalChange & { readonly operations: number }) | undefined> {
    const store = this.#store;
    const from = this.#pin;
    if (!store.synced || from?.revision === store.revision) return undefined;
    const to = store.pin(() => {});
    const size = store.serviceCount;
    const newest = store.viewNode(this.#name, this.#clusterScope);
    const isSameNode = isEqual(newest, this.#node);
    const node = isSameNode ? this.#node : newest;
    const since = isSameNode ? (from?.revision ?? 0) : 0;
    const cells = [...store.services.changedSince(since)].reverse();
    const changed = new Set<string>();
    let operations = 0;
    let turnEnd = performance.now() + TURN_MS;
    for (const cell of cells) {
      const before = { record: from && cell.at(from.revision), node: this.#node };
      const count = this.#differences(cell.key, before, { record: cell.at(to.revision), node });
      if (count > 0) changed.add(cell.key);
      operations += count;
      if (performance.now() < turnEnd) continue;
      await setImmediate();
      turnEnd = performance.now() + TURN_MS;
    }
    from?.release();
    this.#pin = to;
    this.#node = node;
    this.#size = size;
    if (from !== undefined && changed.size === 0) return undefined;
    return { view: this, changed, operations };
  }

  close(): void {
    this.#pin?.release();
  }

  get #revision(): number {
    return this.#pin?.revision ?? 0;
  }

  #entry(key: string, { record, node }: Side): NodeEntry | undefined {
    if (record?.service === undefined) return undefined;
    const kept = this.#large.get(key);
    if (kept?.shows(record, node) === true) return kept;
    return this.#keepLarge(new NodeEntry(key, record, node, this.#store.hasher));
  }

  #keepLarge(entry: NodeEntry): NodeEntry {
    put(this.#large, entry.key, entry.record.endpoints.length < LARGE ? undefined : entry);
    return entry;
  }

  /** How many of a service and its endpoints differ. */
  #differences(key: string, from: Side, { record, node }: Side): number {
    const before = this.#entry(key, from);
    // A service that comes or goes counts with all its endpoints, whichever of them the node uses.
    if (record?.service === undefined) {
      this.#large.delete(key);
      return before === undefined ? 0 : 1 + before.record.endpoints.length;
    }
    if (before === undefined) return 1 + record.endpoints.length;
    const { entry, differences } = before.next(record, node, record.endpoints.length >= LARGE);
    this.#keepLarge(entry);
    return differences;
  }
}

type Infos = readonly EndpointInfo[];

/**
 * A service as one node sees it. The endpoints are selected when they are first read: most readers of very many
 * services look at those of few.
 */
export class NodeEntry implements ServiceEntry {
  readonly key: string;
  readonly record: ServiceRecord;
  readonly #node: ViewNode;
  readonly #hasher: Hasher;
  #traits: Traits | undefined;
  #endpoints: SortedMap<Endpoint> | undefined;

  /** `record`: it has the service. */
  constructor(key: string, record: ServiceRecord, node: ViewNode, hasher: Hasher) {
    this.key = key;
    this.record = record;
    this.#node = node;
    this.#hasher = hasher;
  }

  get service(): Service {
    return this.record.service as Service;
  }

  get endpoints(): SortedMap<Endpoint> {
    return (this.#endpoints ??= this.#sorted());
  }

  /** Whether it is the entry of this very state. */
  shows(record: ServiceRecord, node: ViewNode): boolean {
    return this.record === record && this.#node === node;
  }

  /**
   * The entry of a later state, and how many of the service and its endpoints differ. `isLarge`: only endpoints that a
   * change concerns are evaluated, and the others keep their objects; for few endpoints that takes longer.
   */
  next(
    record: ServiceRecord,
    node: ViewNode,
    isLarge: boolean,
  ): { readonly entry: NodeEntry; readonly differences: number } {
    const entry = new NodeEntry(this.key, record, node, this.#hasher);
    const known = this.endpoints;
    let gone = known.keys();
    let updated = record.endpoints;
    if (isLarge && isEqual(this.#rules(), entry.#rules())) {
      const { before, after } = concerned(this.record.endpoints, record.endpoints);
      gone = this.#select(before).keys();
      updated = after;
    }
    const changes = new Map<string, Endpoint | undefined>();
    for (const each of gone) if (known.has(each)) changes.set(each, undefined);
    for (const [each, { endpoint }] of entry.#select(updated)) {
      if (isEqual(known.get(each), endpoint)) changes.delete(each);
      else changes.set(each, endpoint);
    }
    if (isLarge) entry.#endpoints = known.with(changes);
    const isSameService = isEqual(this.service, entry.service);
    return { entry, differences: changes.size + (isSameService ? 0 : 1) };
  }

  #rules(): Rules {
    return rulesOf(this.service, this.#traitsOfAll(), this.#node);
  }

  #sorted(): SortedMap<Endpoint> {
    const selected = [...this.#select(this.record.endpoints).values()];
    selected.sort((a, b) => comparePaths(a.key, b.key));
    return new SortedMap(
      selected.map(({ key }) => key),
      selected.map(({ endpoint }) => endpoint),
    );
  }

  #select(some: Infos): ReadonlyMap<string, LocalEndpoint> {
    const views = new ServiceViews(this.service, some, this.#hasher, this.#traitsOfAll());
    return views.endpoints(this.#node);
  }

  #traitsOfAll(): Traits {
    return (this.#traits ??= traitsOf(this.service, this.record.endpoints));
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
