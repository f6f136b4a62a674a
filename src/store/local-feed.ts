import type { DataOp } from '../api/ops.ts';
import { Deliverer, type DelivererOptions } from './deliver.ts';
import { sourceSynced } from './events.ts';
import type { GlobalSource } from './global-source.ts';
import { GlobalStore, type GlobalStoreOptions } from './global-store.ts';
import type { Pin } from './history.ts';
import { LocalDeltas, type ServiceDelta } from './local-deltas.ts';
import { LocalState } from './local-state.ts';
import type { LocalChange, LocalSink } from './local-view.ts';
import type { ViewNode } from './selection.ts';

export interface LocalFeedOptions extends GlobalStoreOptions {
  readonly source: GlobalSource;
  /** The node whose view the sink gets. Empty: no node in particular; then no endpoint is local. */
  readonly nodeName: string;
  /** How to try again when the sink fails. */
  readonly delivery?: DelivererOptions | undefined;
}

/**
 * Runs a source of cluster-wide state and gives the view of one node to a sink, one change set at a
 * time. While the sink is at work newer states replace older ones; what changes nothing for the node
 * is not delivered, except the first state, which may be empty. Resolves when the signal is aborted
 * and the sink is not at work any more.
 */
export async function feedLocalSink(
  options: LocalFeedOptions,
  sink: LocalSink,
  signal: AbortSignal,
): Promise<void> {
  const { source, nodeName, delivery } = options;
  const store = new GlobalStore(options);
  const follower = new Follower(store, nodeName);
  const deliverer = new Deliverer(sink, delivery);
  let waiting = false;
  const complete = (): LocalChange => {
    waiting = false;
    const change = follower.take();
    if (sourceSynced.hasSubscribers) {
      const counts = { services: change.view.size, changed: change.changed.size };
      sourceSynced.publish({ source: source.name, ...counts });
    }
    return change;
  };
  const stopListening = store.onChange(() => {
    // A delivery that waits for the sink takes the newest state when its turn comes.
    if (waiting || !follower.differs()) return;
    waiting = true;
    void deliverer.deliver(complete);
  });
  try {
    await source.feed(store, signal);
  } finally {
    stopListening();
    await deliverer.close();
    follower.close();
  }
}

/** Follows the view that one node has of a store. */
class Follower {
  readonly #store: GlobalStore;
  readonly #nodeName: string;
  readonly #deltas = new LocalDeltas();
  readonly #state = new LocalState();
  #at: { readonly pin: Pin; readonly node: ViewNode } | undefined;

  constructor(store: GlobalStore, nodeName: string) {
    this.#store = store;
    this.#nodeName = nodeName;
  }

  /** Whether there is something to take. */
  differs(): boolean {
    if (!this.#store.synced) return false;
    if (this.#at === undefined) return true;
    const { done } = this.#changes(this.#store.viewNode(this.#nodeName)).next();
    if (done === true) this.#arrive();
    return done !== true;
  }

  /** Brings the view up to date. */
  take(): LocalChange {
    // Without a former position this is the whole state, and whatever is not in it has gone.
    if (this.#at === undefined) this.#state.reset();
    const node = this.#store.viewNode(this.#nodeName);
    for (const delta of this.#changes(node)) {
      for (const op of operationsOf(delta)) this.#state.apply(op);
    }
    this.#arrive();
    return this.#state.sync();
  }

  close(): void {
    this.#at?.pin.release();
    this.#at = undefined;
  }

  *#changes(node: ViewNode): Generator<ServiceDelta, void, undefined> {
    const at = this.#at;
    const { services } = this.#store;
    const moved = at?.node.zone !== node.zone;
    const cells =
      at === undefined || moved ? services.cells() : services.changedSince(at.pin.revision);
    for (const cell of cells) {
      const older = at === undefined ? undefined : cell.at(at.pin.revision);
      const delta = this.#deltas.between(
        { record: older, node: at?.node ?? node },
        { record: cell.value, node },
      );
      if (delta !== undefined) yield delta;
    }
  }

  #arrive(): void {
    this.#deltas.clear();
    this.close();
    const pin = this.#store.pin(() => this.close());
    this.#at = { pin, node: this.#store.viewNode(this.#nodeName) };
  }
}

function* operationsOf(delta: ServiceDelta): Generator<DataOp, void, undefined> {
  const { key, service, removed, sets, deletes } = delta;
  for (const each of deletes) yield { kind: 'deleteEndpoint', key, endpointKey: each.key };
  if (removed !== undefined) yield { kind: 'deleteService', key };
  if (service !== undefined) yield { kind: 'setService', key, service: service.service };
  for (const { key: endpointKey, endpoint } of sets) {
    yield { kind: 'setEndpoint', key, endpointKey, endpoint };
  }
}
