import { setImmediate } from 'node:timers/promises';
import { comparePaths } from '../api/paths.ts';
import { isEqual } from '../util/equal.ts';
import { put } from './change-set.ts';
import type { GlobalStore } from './global-store.ts';
import type { Pin } from './history.ts';
import type { LocalChange, LocalView, ServiceEntry } from './local-view.ts';
import { NodeEntry } from './node-entry.ts';
import type { ViewNode } from './selection.ts';
import type { ServiceRecord } from './service-record.ts';
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
    return this.#entry(key, [this.#store.services.at(key, this.#revision), this.#node]);
  }

  *entries(): Generator<ServiceEntry, void, undefined> {
    for (const cell of this.#byPath(this.#store.services.cells())) {
      const entry = this.#entry(cell.key, [cell.at(this.#revision), this.#node]);
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

  #entry(key: string, [record, node]: Side): NodeEntry | undefined {
    if (record?.service === undefined) return undefined;
    const seen = { service: record.service, infos: record.endpoints, node };
    const kept = this.#large.get(key);
    if (kept?.shows(seen) === true) return kept;
    return this.#keep(new NodeEntry(key, seen, this.#store.hasher), record);
  }

  /** Keeps an entry if it is large. */
  #keep(entry: NodeEntry, { endpoints }: ServiceRecord): NodeEntry {
    put(this.#large, entry.key, endpoints.length < LARGE ? undefined : entry);
    return entry;
  }

  /** How many of a service and its endpoints differ. */
  #differences(key: string, from: Side, to: Side): number {
    const before = this.#entry(key, from);
    const [record, node] = to;
    // A service that comes or goes counts with all its endpoints, whichever of them the node uses.
    if (record?.service === undefined) {
      this.#large.delete(key);
      return before === undefined ? 0 : 1 + (from[0]?.endpoints.length ?? 0);
    }
    if (before === undefined) return 1 + record.endpoints.length;
    const { service, endpoints: infos } = record;
    const { entry, differences } = before.next({ service, infos, node }, infos.length >= LARGE);
    this.#keep(entry, record);
    return differences;
  }
}

type Side = readonly [record: ServiceRecord | undefined, node: ViewNode];
