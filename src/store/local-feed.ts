import type { Hasher } from '../api/hash.ts';
import { delivererTo, type DelivererOptions } from './deliver.ts';
import { sourceSynced } from './events.ts';
import { type GlobalSource, GlobalStore } from './global-store.ts';
import type { LocalSink } from './local-view.ts';
import { NodeView } from './node-view.ts';

export interface LocalFeedOptions {
  /** See `loadHasher`. */
  readonly hasher: Hasher;
  readonly source: GlobalSource;
  /** The node. Empty: no particular node; then no endpoint is local. */
  readonly nodeName: string;
  /** Whether the sink knows the scope `cluster` of endpoints. Default: no. */
  readonly clusterScope?: boolean | undefined;
  /** Back-off for when the sink fails. */
  readonly delivery?: DelivererOptions | undefined;
}

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
  const { source, nodeName, hasher, clusterScope = false, delivery } = options;
  const store = new GlobalStore({ hasher });
  // A single reader keeps at most one previous version of each entry.
  store.history.limit = Infinity;
  const view = new NodeView(store, nodeName, clusterScope);
  const deliverer = delivererTo(sink, delivery);
  let waiting = false;
  const complete = async () => {
    waiting = false;
    const change = await view.next();
    if (change !== undefined && sourceSynced.hasSubscribers) {
      const { changed, operations } = change;
      const counts = { services: view.size, changed: changed.size, operations };
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
  }
}
