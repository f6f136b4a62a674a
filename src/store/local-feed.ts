import { setImmediate } from 'node:timers/promises';
import { Deliverer, type DelivererOptions } from './deliver.ts';
import { sourceSynced } from './events.ts';
import { type GlobalSource, GlobalStore, type GlobalStoreOptions } from './global-store.ts';
import { LocalOps } from './local-view-readers.ts';
import { LocalState } from './local-state.ts';
import type { LocalChange, LocalSink } from './local-view.ts';

export interface LocalFeedOptions extends GlobalStoreOptions {
  readonly source: GlobalSource;
  /** The node. Empty: no particular node; then no endpoint is local. */
  readonly nodeName: string;
  /** Whether the sink knows the scope `cluster` of endpoints. Default: no. */
  readonly clusterScope?: boolean | undefined;
  /** Back-off for when the sink fails. */
  readonly delivery?: DelivererOptions | undefined;
}

/** A large change yields to other work after this long. Milliseconds. */
const TURN_MS = 10;

/**
 * Runs a source of cluster-wide state and passes the view of one node to a sink, one change set at a time. While the
 * sink is busy, newer states replace older ones; changes that do not concern the node are not delivered, except the
 * first state, which may be empty. Resolves when the signal is aborted and the sink is idle.
 */
export async function feedLocalSink(
  options: LocalFeedOptions,
  sink: LocalSink,
  signal: AbortSignal,
): Promise<void> {
  const { source, nodeName, clusterScope, delivery } = options;
  const store = new GlobalStore(options);
  let isNew = true;
  const reader = new LocalOps(store).open({
    onEvicted: () => {
      isNew = true;
    },
  });
  const state = new LocalState();
  const deliverer = new Deliverer(sink, delivery);
  let waiting = false;
  const complete = async (): Promise<LocalChange | undefined> => {
    waiting = false;
    const operations = reader.next(nodeName, clusterScope);
    if (operations === undefined) return undefined;
    if (isNew) state.reset();
    isNew = false;
    let turnEnd = performance.now() + TURN_MS;
    for (const operation of operations) {
      state.apply(operation);
      if (performance.now() < turnEnd) continue;
      await setImmediate();
      turnEnd = performance.now() + TURN_MS;
    }
    const change = state.sync();
    if (sourceSynced.hasSubscribers) {
      const counts = {
        services: change.view.size,
        changed: change.changed.size,
        operations: state.takeOperations(),
      };
      sourceSynced.publish({ source: source.name, ...counts });
    }
    return change;
  };
  const stopListening = store.onChange(() => {
    // A delivery that waits for the sink uses the newest state when it starts.
    if (waiting) return;
    waiting = true;
    void deliverer.deliver(complete);
  });
  try {
    await source.feed(store, signal);
  } finally {
    stopListening();
    await deliverer.close();
    reader.close();
  }
}
