import type { DelivererOptions } from './deliver.ts';
import type { GlobalStore } from './global-store.ts';
import type { LocalSink } from './local-view.ts';

/** What a sink wants that takes the view of one node. */
export interface LocalWish {
  /** The node. Empty: no node in particular; then no endpoint is local. */
  readonly nodeName: string;
  /** How to try again when the sink fails. */
  readonly delivery?: DelivererOptions | undefined;
}

/** Where the cluster-wide state comes from: a state file, the API of Kubernetes, a kpng server. */
export interface GlobalSource {
  /** For people, such as `state file state.yaml`. */
  readonly name: string;
  /**
   * Writes the state to the store, again whenever it changes, until the signal aborts. What is wrong
   * with the source changes nothing there. Rejects only when it cannot go on: what can be retried, is.
   */
  feed(store: GlobalStore, signal: AbortSignal): Promise<void>;
  /** The same as `feedLocalSink`, of a source that can do it in a better way than over a store. */
  feedLocal?(wish: LocalWish, sink: LocalSink, signal: AbortSignal): Promise<void>;
}
