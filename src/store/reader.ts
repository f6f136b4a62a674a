import type { GlobalStore } from './global-store.ts';
import type { OnEvicted, Pin } from './history.ts';
import type { ViewNode } from './selection.ts';

/** A complete change set as frames in the order of the wire, without Reset and Sync. */
export type ChangeSet = Iterable<Buffer>;

/** A client's position in the state, and its pending change set. */
export interface Reader {
  /**
   * The change set that brings the client to the newest state; undefined when there is nothing to send, or nothing
   * may be sent yet. The first one may be empty. It has to be iterated to its end, or the reader closed, before the
   * next call. In the global API, nothing depends on the node.
   * `clusterScope`: whether to include endpoints that only clients in the cluster may use; default: no.
   */
  next(nodeName: string, clusterScope?: boolean): ChangeSet | undefined;
  /** Idempotent. */
  close(): void;
}

/** A state as the clients of one node see it. */
export interface Position {
  readonly pin: Pin;
  readonly node: ViewNode;
}

/** Creates readers of one kind, which share results. */
export abstract class Readers {
  protected readonly store: GlobalStore;
  #revision = 0;

  constructor(store: GlobalStore) {
    this.store = store;
  }

  /** Clears the shared results: the state has changed. */
  protected abstract clear(): void;
  /**
   * The changes from one position, or from nothing, to the newest one; undefined or empty: they are the same. Anything
   * but an array is produced during iteration, and needs both positions until then.
   */
  protected abstract between(from: Position | undefined, to: Position): ChangeSet | undefined;

  /** `onEvicted`: the reader was closed because it lags too far behind. Called while the state is being changed. */
  open(onEvicted: OnEvicted): Reader {
    let position: Position | undefined;
    /** The position after the change set that is being iterated. */
    let next: Position | undefined;
    const arrive = (): void => {
      if (next === undefined) return;
      position?.pin.release();
      position = next;
      next = undefined;
    };
    const close = (): void => {
      arrive();
      position?.pin.release();
      position = undefined;
    };
    const evict: OnEvicted = (error) => {
      close();
      onEvicted(error);
    };
    const whileTaken = function* (changes: ChangeSet): Generator<Buffer, void, undefined> {
      yield* changes;
      arrive();
    };
    return {
      next: (nodeName, clusterScope = false) => {
        arrive();
        const { store } = this;
        if (!store.synced) return undefined;
        const isFirst = position === undefined;
        const isCurrent = position?.pin.revision === store.revision;
        const { name, clusterScope: scope } = position?.node ?? {};
        if (isCurrent && name === nodeName && scope === clusterScope) return undefined;
        if (this.#revision !== store.revision) this.clear();
        this.#revision = store.revision;
        next = { pin: store.pin(evict), node: store.viewNode(nodeName, clusterScope) };
        const changes = this.between(position, next);
        if (changes !== undefined && !Array.isArray(changes)) return whileTaken(changes);
        arrive();
        const list: readonly Buffer[] = changes ?? [];
        return list.length > 0 || isFirst ? list : undefined;
      },
      close,
    };
  }
}
