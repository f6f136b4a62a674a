import { setImmediate } from 'node:timers/promises';
import type { Node } from '../api/generated/globalv1/api.ts';
import type { Hasher } from '../api/hash.ts';
import { Compactor } from './compact.ts';
import { storeWritten } from './events.ts';
import { type GlobalSet, GlobalTransaction } from './global-transaction.ts';
import { DEFAULT_MAX_HISTORY, History, type OnEvicted, type Pin } from './history.ts';
import type { ViewNode } from './selection.ts';
import type { ServiceRecord } from './service-record.ts';
import { zoneOf } from './stored.ts';
import { Table } from './table.ts';

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
  readonly services: Table<ServiceRecord>;
  readonly nodes: Table<Node>;
  readonly #history = new History(DEFAULT_MAX_HISTORY);
  readonly #complete = new Set<GlobalSet>();
  readonly #listeners = new Set<() => void>();
  readonly #compactor = new Compactor();
  #revision = 0;
  #serviceCount = 0;
  #updating = false;

  /** `hasher`: see `loadHasher`. */
  constructor({ hasher }: { readonly hasher: Hasher }) {
    this.hasher = hasher;
    this.services = new Table(this.#history, (record) => record.endpoints.length + 1);
    this.nodes = new Table(this.#history, () => 1);
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

  /** Number of kept endpoints of previous states. */
  get history(): number {
    return this.#history.kept;
  }

  /** Replaces the limit, at first DEFAULT_MAX_HISTORY, from the next change on. */
  limitHistory(maxHistory: number): void {
    this.#history.limit = maxHistory;
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
    const previous = this.pin(() => previous.release());
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
    return new GlobalTransaction({
      revision: this.#revision + 1,
      services: this.services,
      nodes: this.nodes,
      complete: this.#complete,
      compactor: this.#compactor,
    });
  }

  #commit(transaction: GlobalTransaction): void {
    this.#updating = false;
    if (storeWritten.hasSubscribers) storeWritten.publish({ changed: transaction.changed });
    if (!transaction.changed) return;
    this.#revision++;
    this.#serviceCount += transaction.addedServices;
    this.#history.enforceLimit();
    for (const listener of this.#listeners) listener();
  }

  /** Calls `listener` after each transaction that changed something. Returns a function that unsubscribes it. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /**
   * Pins the newest revision, so that later changes can be queried. A reader that lags too far behind loses its pin:
   * `onEvicted` is called with the reason, and must release it.
   */
  pin(onEvicted: OnEvicted): Pin {
    return this.#history.pin(this.#revision, onEvicted);
  }

  /** A node in the form that a view needs. An unknown node has no zone. */
  viewNode(name: string, clusterScope: boolean): ViewNode {
    const node = this.nodes.at(name, this.#revision);
    return { name, zone: node === undefined ? '' : zoneOf(node), clusterScope };
  }
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
