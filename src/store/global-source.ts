import type { GlobalStore } from './global-store.ts';

/** Where the cluster-wide state comes from: a state file, the API of Kubernetes, a kpng server. */
export interface GlobalSource {
  /** For people, such as `state file state.yaml`. */
  readonly name: string;
  /**
   * Writes the state to the store, again whenever it changes, until the signal aborts. What is wrong
   * with the source changes nothing there. Rejects only when it cannot go on: what can be retried, is.
   */
  feed(store: GlobalStore, signal: AbortSignal): Promise<void>;
}
