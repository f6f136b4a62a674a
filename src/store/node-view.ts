import { setImmediate } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import type { Service } from '../api/generated/localv1/api.ts';
import { comparePaths } from '../api/paths.ts';
import type { GlobalStore } from './global-store.ts';
import type { Pin } from './history.ts';
import type { LocalChange, LocalView, ServiceEntry } from './local-view.ts';
import { LargeEntry } from './large-entry.ts';
import type { ViewNode } from './selection.ts';
import type { ServiceRecord } from './service-record.ts';
import { ServiceViews } from './service-views.ts';
import { SortedMap } from './sorted-map.ts';
import type { LocalEndpoint } from './stored.ts';
import { sorter } from './table.ts';

/** A large change yields to other work after this long. Milliseconds. */
const TURN_MS = 10;

/** From this number of endpoints on, the last entry of a service is kept, and the next one is made from it. */
const LARGE = 1000;

type Selected = ReadonlyMap<string, LocalEndpoint>;

/**
 * Selects the endpoints when they are first read: most readers of very many services look at those of few. A class,
 * because creating objects with a getter of their own takes long.
 */
class LazyEntry implements ServiceEntry {
  readonly key: string;
  readonly service: Service;
  readonly #select: () => ServiceEntry['endpoints'];
  #endpoints: ServiceEntry['endpoints'] | undefined;

  constructor(key: string, service: Service, select: () => ServiceEntry['endpoints']) {
    this.key = key;
    this.service = service;
    this.#select = select;
  }

  get endpoints(): ServiceEntry['endpoints'] {
    return (this.#endpoints ??= this.#select());
  }
}

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
  readonly #large = new Map<string, LargeEntry>();
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
    return this.#entry(key, this.#store.services.at(key, this.#revision));
  }

  *entries(): Generator<ServiceEntry, void, undefined> {
    for (const cell of this.#byPath(this.#store.services.cells())) {
      const entry = this.#entry(cell.key, cell.at(this.#revision));
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
    const isSameNode = isDeepStrictEqual(newest, this.#node);
    const node = isSameNode ? this.#node : newest;
    const since = isSameNode ? (from?.revision ?? 0) : 0;
    const cells = [...store.services.changedSince(since)].reverse();
    const changed = new Set<string>();
    let operations = 0;
    let turnEnd = performance.now() + TURN_MS;
    for (const cell of cells) {
      const before = from && cell.at(from.revision);
      const after = cell.at(to.revision);
      const count = this.#differences(cell.key, [before, this.#node], [after, node]);
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

  #entry(key: string, record: ServiceRecord | undefined): ServiceEntry | undefined {
    if (record?.service === undefined) return undefined;
    const side: Side = [record, this.#node];
    const large = this.#largeEntry(key, side);
    if (large !== undefined) return large.entry;
    return new LazyEntry(key, record.service, () => endpointsOf(this.#select(side)));
  }

  /** Undefined: the service is not large. */
  #largeEntry(key: string, [record, node]: Side): LargeEntry | undefined {
    if (record?.service === undefined || record.endpoints.length < LARGE) {
      this.#large.delete(key);
      return undefined;
    }
    const kept = this.#large.get(key);
    const seen = { service: record.service, infos: record.endpoints, node };
    if (kept?.shows(seen) === true) return kept;
    const entry = new LargeEntry(key, seen, this.#store.hasher, kept);
    this.#large.set(key, entry);
    return entry;
  }

  #select([record, node]: Side): Selected {
    if (record?.service === undefined) return NONE;
    const views = new ServiceViews(record.service, record.endpoints, this.#store.hasher);
    return views.endpoints(node);
  }

  /** How many of a service and its endpoints differ. */
  #differences(key: string, from: Side, to: Side): number {
    const [before, after] = [from[0]?.service, to[0]?.service];
    if (after === undefined) this.#large.delete(key);
    if (before === undefined && after === undefined) return 0;
    // A service that comes or goes counts with all its endpoints, whichever of them the node uses.
    if (before === undefined) return 1 + (to[0]?.endpoints.length ?? 0);
    if (after === undefined) return 1 + (from[0]?.endpoints.length ?? 0);
    const [kept, large] = [this.#largeEntry(key, from), this.#largeEntry(key, to)];
    if (kept !== undefined && large !== undefined) return kept === large ? 0 : large.differences;
    const old = this.#select(from);
    const updated = this.#select(to);
    let count = before !== after && !isDeepStrictEqual(before, after) ? 1 : 0;
    for (const [each, endpoint] of updated) {
      if (old.get(each)?.equals(endpoint) !== true) count += 1;
    }
    for (const each of old.keys()) if (!updated.has(each)) count += 1;
    return count;
  }
}

function endpointsOf(selected: Selected): ServiceEntry['endpoints'] {
  const sorted = [...selected.values()].sort((a, b) => comparePaths(a.key, b.key));
  return new SortedMap(
    sorted.map(({ key }) => key),
    sorted.map(({ endpoint }) => endpoint),
  );
}

type Side = readonly [record: ServiceRecord | undefined, node: ViewNode];

const NONE: Selected = new Map();
