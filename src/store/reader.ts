import type { KpngError } from '../errors.ts';
import { holder, type GlobalStore } from './global-store.ts';
import type { Pin } from './history.ts';

/** A complete change set as frames in the order of the wire, without Reset and Sync. */
export type ChangeSet = Iterable<Buffer>;

/** A client's position in the state, and its pending change set. */
export interface Reader {
  /**
   * The change set that brings the client to the newest state; undefined when there is nothing to send, or nothing
   * may be sent yet. The first one may be empty. It has to be iterated to its end, or the reader closed, before the
   * next call. The global API ignores the arguments.
   * `clusterScope`: whether to include endpoints that only clients in the cluster may use; default: no.
   */
  next(nodeName: string, clusterScope?: boolean): ChangeSet | undefined;
  /** Idempotent. */
  close(): void;
}

export interface ReaderOptions {
  /** The reader was closed because it lags too far behind. Called while the state is being changed. */
  readonly onEvicted: (error: KpngError) => void;
}

/** A state as clients see it: a revision, and other inputs of their view. */
export interface Position {
  readonly pin: Pin;
}

/** Creates readers of one kind, which share results. */
export abstract class Readers<P extends Position = Position> {
  protected readonly store: GlobalStore;

  constructor(store: GlobalStore) {
    this.store = store;
  }

  /** The position of a client that has received everything. */
  protected abstract positionAt(pin: Pin, nodeName: string, clusterScope: boolean): P;
  /** Whether nothing can have changed for this node since then. */
  protected abstract isCurrent(position: P, nodeName: string, clusterScope: boolean): boolean;
  /**
   * The changes from one position, or from nothing, to the other; undefined or empty: they are the same. Anything but
   * an array is produced during iteration, and needs both positions until then.
   */
  protected abstract between(from: P | undefined, to: P): ChangeSet | undefined;

  open({ onEvicted }: ReaderOptions): Reader {
    let position: P | undefined;
    /** The position after the change set that is being iterated. */
    let next: P | undefined;
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
    const held = holder((error) => {
      close();
      onEvicted(error);
    });
    const whileTaken = function* (changes: ChangeSet): Generator<Buffer, void, undefined> {
      yield* changes;
      arrive();
    };
    return {
      next: (nodeName, clusterScope = false) => {
        arrive();
        if (!this.store.synced) return undefined;
        if (position !== undefined && this.isCurrent(position, nodeName, clusterScope)) {
          return undefined;
        }
        const isFirst = position === undefined;
        next = this.positionAt(this.store.pinFor(held), nodeName, clusterScope);
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
