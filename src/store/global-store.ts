import { setImmediate } from 'node:timers/promises';
import type { EndpointInfo, Node } from '../api/generated/globalv1/api.ts';
import type { Service } from '../api/generated/localv1/api.ts';
import type { Hasher } from '../api/hash.ts';
import { servicePath } from '../api/paths.ts';
import { isEqual } from '../util/compare.ts';
import { Compactor } from './compact.ts';
import { storeWritten } from './events.ts';
import type { ViewNode } from './selection.ts';
import { ServiceRecord } from './service-views.ts';
import { zoneOf } from './stored.ts';
import { History, type OnEvicted, type Pin, Table } from './table.ts';

export type GlobalSet = 'services' | 'endpoints' | 'nodes';
const ALL_SETS: readonly GlobalSet[] = ['services', 'endpoints', 'nodes'];

/** Endpoints of one service that are added and removed together, such as those of an EndpointSlice. */
export interface EndpointSource<Part = EndpointInfo> {
  readonly namespace: string;
  readonly serviceName: string;
  /** Name of the source, unique for its service. */
  readonly name: string;
  /** The store owns them: they get the names of the source, and equal parts are shared. */
  readonly endpoints: readonly Part[];
}

/** The endpoints of a source from one index up to another. */
export interface Range {
  readonly from: number;
  readonly to: number;
}

/** A change that is applied in parts yields to other work after this long. Milliseconds. */
const TURN_MS = 10;

/**
 * The cluster-wide state: services, endpoints and nodes, as a source knows them, with revisions.
 *
 * Sources write to it in transactions; readers pin the revision that they have seen, and later find out what changed
 * since. Nothing is sent to clients before the state is synced: the source has marked each of the three sets as
 * complete. A set may be complete and empty.
 */
export class GlobalStore {
  readonly hasher: Hasher;
  /** By `namespace/name`. A record may have endpoints only. */
  readonly services = new Table<ServiceRecord>((record) => record.endpoints.length + 1);
  readonly nodes = new Table<Node>(() => 1);
  readonly history = new History(this.services, this.nodes);
  readonly #complete = new Set<GlobalSet>();
  readonly #listeners = new Set<() => void>();
  readonly #compactor = new Compactor();
  #revision = 0;
  #serviceCount = 0;
  #updating = false;

  /** `hasher`: see `loadHasher`. */
  constructor({ hasher }: { readonly hasher: Hasher }) {
    this.hasher = hasher;
  }

  /** Grows by one with each transaction that changed something. */
  get revision(): number {
    return this.#revision;
  }

  /** Whether every set is complete. Once true it stays true. */
  get synced(): boolean {
    return this.#complete.size === 3;
  }

  /** Number of services, not counting those that have only endpoints. */
  get serviceCount(): number {
    return this.#serviceCount;
  }

  /**
   * Changes the state: atomically for readers, which are notified when `change` is done. Returns whether anything
   * differs. If `change` throws, its earlier writes remain.
   */
  update(change: (transaction: GlobalTransaction) => void): boolean {
    const transaction = this.#begin();
    try {
      change(transaction);
    } finally {
      this.#commit(transaction);
    }
    return transaction.changed;
  }

  /**
   * The same in steps, between which other work runs: for changes that may be large. Readers see the previous state
   * until the last step is done; no other transaction may be open.
   */
  async updateInParts(
    steps: (transaction: GlobalTransaction) => Iterable<void> | AsyncIterable<void>,
  ): Promise<boolean> {
    const transaction = this.#begin();
    // Concurrent readers need the versions that are being replaced.
    const previous = this.pin();
    try {
      let end = performance.now() + TURN_MS;
      for await (const _ of steps(transaction)) {
        if (performance.now() < end) continue;
        await setImmediate();
        end = performance.now() + TURN_MS;
      }
    } finally {
      previous.release();
      this.#commit(transaction);
    }
    return transaction.changed;
  }

  #begin(): GlobalTransaction {
    if (this.#updating) throw new Error('a transaction is open already');
    this.#updating = true;
    return new GlobalTransaction(this, this.#complete, this.#compactor);
  }

  #commit(transaction: GlobalTransaction): void {
    this.#updating = false;
    if (storeWritten.hasSubscribers) storeWritten.publish({ changed: transaction.changed });
    if (!transaction.changed) return;
    this.#revision++;
    this.#serviceCount += transaction.addedServices;
    this.history.enforceLimit();
    for (const listener of this.#listeners) listener();
  }

  /** Calls `listener` after each transaction that changed something. Returns a function that unsubscribes it. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /**
   * Pins the newest revision, so that later changes can be queried. A reader that lags too far behind loses its pin:
   * `onEvicted` is called with the reason.
   */
  pin(onEvicted?: OnEvicted): Pin {
    return this.history.pin(this.#revision, onEvicted);
  }

  /** A node in the form that a view needs. An unknown node has no zone. */
  viewNode(name: string, clusterScope = false): ViewNode {
    const node = this.nodes.at(name, this.#revision);
    return { name, zone: node === undefined ? '' : zoneOf(node), clusterScope };
  }
}

/**
 * One change of the global state. The messages passed in belong to the store from then on; values equal to the current
 * ones change nothing.
 */
export class GlobalTransaction {
  readonly #store: GlobalStore;
  readonly #complete: Set<GlobalSet>;
  readonly #compactor: Compactor;
  changed = false;
  /** Services that were added, less those that were removed. */
  addedServices = 0;

  constructor(store: GlobalStore, complete: Set<GlobalSet>, compactor: Compactor) {
    this.#store = store;
    this.#complete = complete;
    this.#compactor = compactor;
  }

  /** Undefined removes the service; its endpoints stay until their sources are removed. `key`: `namespace/name`. */
  setService(key: string, service: Service | undefined): void {
    const old = this.#store.services.get(key) ?? NOTHING;
    if (isEqual(old.service, service)) return;
    this.addedServices += (service === undefined ? 0 : 1) - (old.service === undefined ? 0 : 1);
    if (service !== undefined) this.#compactor.compact(service);
    this.#setRecord(key, new ServiceRecord(service, old.endpoints));
  }

  /**
   * Replaces the endpoints that the service has from this source; none removes the source. A range stands for endpoints of
   * the list before the transaction, which `updateInParts` keeps, and `update` only if a reader needs it.
   */
  setSource(source: EndpointSource<EndpointInfo | Range>): void {
    const { services, revision } = this.#store;
    const key = servicePath(source.namespace, source.serviceName);
    const old = services.at(key, revision)?.from(source.name) ?? [];
    const updated: EndpointInfo[] = [];
    for (const part of source.endpoints) {
      if ('from' in part) {
        for (let at = part.from; at < part.to; at += 1) updated.push(old[at] as EndpointInfo);
        continue;
      }
      const info = adopt(part, source, this.#compactor, updated.at(-1));
      // Changes usually leave the order as it is.
      const before = old[updated.length];
      // A new endpoint has no hash yet.
      updated.push(before && isEqual({ ...before, hash: 0n }, info) ? before : info);
    }
    const record = services.get(key) ?? NOTHING;
    if (isEqual(record.from(source.name), updated)) return;
    // A copy has no spare capacity, which very many services would keep.
    this.#setRecord(key, record.withSource(source.name, updated.slice()));
  }

  /** Undefined removes the node. */
  setNode(name: string, node: Node | undefined): void {
    const { nodes } = this.#store;
    if (isEqual(nodes.get(name), node)) return;
    nodes.set(name, node);
    this.changed = true;
  }

  /** Marks the sets (all of them, if none is named) as complete. */
  setComplete(...sets: readonly GlobalSet[]): void {
    for (const set of sets.length === 0 ? ALL_SETS : sets) {
      if (this.#complete.has(set)) continue;
      this.#complete.add(set);
      this.changed = true;
    }
  }

  #setRecord(key: string, record: ServiceRecord): void {
    const empty = record.service === undefined && record.endpoints.length === 0;
    this.#store.services.set(key, empty ? undefined : record);
    this.changed = true;
  }
}

const NOTHING = new ServiceRecord();

/** An endpoint as the store keeps it. `previous`: the one before it. */
function adopt(
  info: EndpointInfo,
  { namespace, name, serviceName }: EndpointSource<unknown>,
  compactor: Compactor,
  previous: EndpointInfo | undefined,
): EndpointInfo {
  info.hash = 0n;
  info.namespace = namespace;
  info.sourceName = name;
  info.serviceName = serviceName;
  compactor.compact(info, previous);
  return info;
}

/** A source of cluster-wide state: a state file, the Kubernetes API, a kpng server. */
export interface GlobalSource {
  /** For people, such as `state file state.yaml`. */
  readonly name: string;
  /**
   * Writes the state to the store, again whenever it changes, until the signal aborts. A failure of the source
   * changes nothing there. Retries failures; rejects only on a permanent one.
   */
  feed(store: GlobalStore, signal: AbortSignal): Promise<void>;
}
