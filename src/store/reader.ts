import { SYNC_FRAME } from '../api/frames.ts';
import type { EndpointInfo } from '../api/generated/globalv1/api.ts';
import { isEqual } from '../util/compare.ts';
import type { GlobalStore } from './global-store.ts';
import type { ViewNode } from './selection.ts';
import type { ServiceRecord } from './service-views.ts';
import {
  difference,
  endpointEntry,
  type Entry,
  globalNodeEntry,
  globalServiceEntry,
} from './stored.ts';
import { compareKeys, type OnEvicted, type Pin } from './table.ts';

/**
 * A complete change set as frames in the order of the wire, without a Reset, with its Sync: in one piece, or if it is
 * large, built during iteration.
 */
export type ChangeSet = Buffer | Iterable<Buffer>;

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
export interface Position extends Pin {
  readonly node: ViewNode;
}

/** Change sets of up to this many services are built at once; larger ones while they are sent. */
export const SMALL = 1000;

/** Creates readers of one kind, which share results. */
export abstract class Readers {
  protected readonly store: GlobalStore;
  /** Results for clients that move on to this revision. */
  #shared = { revision: 0, results: new Map<string, unknown>() };

  constructor(store: GlobalStore) {
    this.store = store;
  }

  /**
   * The changes from one position, or from nothing, to the newest one; undefined: they are the same. What is built during
   * iteration needs both positions until then, and has no Sync yet.
   */
  protected abstract between(from: Position | undefined, to: Position): ChangeSet | undefined;

  /** A result that many clients share, until the state changes. */
  protected once<T>(name: string, make: () => T): T {
    const { revision } = this.store;
    if (this.#shared.revision !== revision) this.#shared = { revision, results: new Map() };
    const { results } = this.#shared;
    const known = results.get(name) as T | undefined;
    if (known !== undefined) return known;
    const made = make();
    results.set(name, made);
    return made;
  }

  /** A change set for many clients, made once. */
  protected joined(name: string, frames: () => Iterable<Buffer>): Buffer | undefined {
    return this.once(`frames ${name}`, () => [inOnePiece([...frames()])])[0];
  }

  /** `onEvicted`: the reader was closed because it lags too far behind. Called while the state is being changed. */
  open(onEvicted: OnEvicted): Reader {
    /** The client's position and, while a change set is being taken, the one after it. */
    const held: Position[] = [];
    const release = (left: 0 | 1): void => {
      while (held.length > left) held.shift()?.release();
    };
    const evict: OnEvicted = (error) => {
      release(0);
      onEvicted(error);
    };
    const whileTaken = function* (changes: Iterable<Buffer>): Generator<Buffer, void, undefined> {
      yield* changes;
      yield SYNC_FRAME;
      release(1);
    };
    return {
      next: (nodeName, clusterScope = false) => {
        release(1);
        const { store } = this;
        if (!store.synced) return undefined;
        const [position] = held;
        const node = store.viewNode(nodeName, clusterScope);
        const isCurrent = position?.revision === store.revision;
        if (isCurrent && isEqual(position.node, node)) return undefined;
        const next = { ...store.pin(evict), node };
        held.push(next);
        const changes = this.between(position, next);
        if (changes !== undefined && !Buffer.isBuffer(changes)) return whileTaken(changes);
        release(1);
        return changes ?? (position === undefined ? SYNC_FRAME : undefined);
      },
      close: () => release(0),
    };
  }
}

/** Frames with a Sync behind them; undefined: there are none. */
export function inOnePiece(frames: readonly Buffer[]): Buffer | undefined {
  return frames.length === 0 ? undefined : Buffer.concat([...frames, SYNC_FRAME]);
}

/** Readers of the whole state. All clients that have seen the same revision get the same bytes. */
export class GlobalReaders extends Readers {
  protected between(older: Position | undefined, newer: Position): ChangeSet | undefined {
    const from = older?.revision ?? 0;
    const { nodes, services } = this.store;
    const [nodeKeys, serviceKeys] = [
      nodes.keys(undefined, from),
      services.keys(byGlobalPath, from),
    ];
    const frames = this.#framesOf(nodeKeys, serviceKeys, from, newer.revision);
    const isLarge = nodeKeys.length + serviceKeys.length > SMALL;
    return isLarge ? frames : this.joined(String(from), () => frames);
  }

  /**
   * The operations in kpng's order: nodes, services, endpoints, and the reverse for removals. Within a step,
   * additions are in order of their path, deletions in the opposite order.
   */
  *#framesOf(
    nodeKeys: readonly string[],
    serviceKeys: readonly string[],
    from: number,
    to: number,
  ): Generator<Buffer, void, undefined> {
    const { nodes, services, hasher } = this.store;
    const gone: Entry[] = [];
    for (const key of nodeKeys) {
      const [before, after] = [nodes.at(key, from), nodes.at(key, to)].map(
        (node) => node && globalNodeEntry(node, hasher),
      );
      yield* difference(before, after, gone);
    }
    for (const key of serviceKeys) {
      const [before, after] = [services.at(key, from), services.at(key, to)].map(
        (record) => record?.service && globalServiceEntry(record.service, hasher),
      );
      yield* difference(before, after, gone);
    }
    for (const key of serviceKeys) {
      const [before, after] = [services.at(key, from), services.at(key, to)];
      if (before === undefined && after !== undefined) {
        if (after.endpoints.length > 0) yield after.globalFrames(hasher);
        continue;
      }
      // The last of several equal endpoints counts; only their names differ.
      const byPath = (record: ServiceRecord | undefined): ReadonlyMap<string, EndpointInfo> =>
        new Map(record?.inPathOrder(hasher) ?? []);
      const [old, updated] = [byPath(before), byPath(after)];
      for (const [path, info] of updated) {
        // With an equal path, the pod's name and hints may differ.
        const same = old.get(path);
        if (same === info) continue;
        yield* difference(same && endpointEntry(same, hasher), endpointEntry(info, hasher), gone);
      }
      for (const [path, info] of old) {
        if (!updated.has(path)) gone.push(endpointEntry(info, hasher));
      }
    }
    for (const entry of gone.reverse()) yield entry.deletion();
  }
}

/** Global paths join their parts with `|`, which sorts differently from the `/` of the keys. */
function byGlobalPath(a: string, b: string): number {
  return compareKeys(`${a.replace('/', '|')}|`, `${b.replace('/', '|')}|`);
}
