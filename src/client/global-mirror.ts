import type { EndpointInfo, Node } from '../api/generated/globalv1/api.ts';
import type { Service } from '../api/generated/localv1/api.ts';
import type { GlobalDataOp, InvalidGlobalOp } from '../api/global-ops.ts';
import { servicePath, type GlobalEndpointRef } from '../api/paths.ts';
import type { GlobalTransaction } from '../store/global-transaction.ts';
import { DELETED, KEPT, StateSize, type Staged, type StateLimits } from '../store/staged.ts';
import { compareKeys } from '../store/table.ts';

/** A service's part of a source: several services may name the same source. */
interface Source {
  readonly ref: Omit<GlobalEndpointRef, 'key'>;
  /** By their hash. */
  readonly infos: Entries<EndpointInfo>;
}

/**
 * Turns the operations of a global API server into writes to a store: whole change sets, and after a Reset also the
 * removal of entries that are no longer sent.
 */
export class GlobalMirror {
  readonly #services = new Entries<Service>();
  readonly #nodes = new Entries<Node>();
  readonly #sources = new Map<string, Source>();
  /** Keys of the sources in the open change set. */
  readonly #touched = new Set<string>();
  readonly #size: StateSize;
  #resyncing = false;

  constructor(limits: StateLimits) {
    this.#size = new StateSize(limits);
  }

  /** Marks every entry stale, and discards the open change set. */
  reset(): void {
    this.#services.discard();
    this.#nodes.discard();
    for (const key of this.#touched) {
      const infos = this.#sources.get(key)?.infos;
      infos?.discard();
      if (infos?.known.size === 0) this.#sources.delete(key);
    }
    this.#touched.clear();
    this.#size.reset();
    this.#resyncing = true;
  }

  /** Adds an operation to the change set. Throws KPNG_STATE_TOO_LARGE; the change set must then be discarded. */
  apply(op: GlobalDataOp | InvalidGlobalOp): void {
    const target = op.kind === 'invalid' ? op.target : op;
    // Of the type that belongs to the target.
    const value = (op.kind === 'invalid' ? KEPT : (op.value ?? DELETED)) as Staged<never>;
    if (target?.kind === 'service') {
      const { namespace, name } = target.ref;
      this.#services.stage(servicePath(namespace, name), value, this.#size);
    } else if (target?.kind === 'node') {
      this.#nodes.stage(target.ref, value, this.#size);
    } else if (target?.kind === 'endpoint') {
      const { ref } = target;
      const key = `${ref.namespace}|${ref.serviceName}|${ref.sourceName}`;
      let source = this.#sources.get(key);
      if (source === undefined) this.#sources.set(key, (source = { ref, infos: new Entries() }));
      this.#touched.add(key);
      source.infos.stage(ref.key, value, this.#size, key.length);
    }
  }

  /** Writes the complete change set to a store, in steps; no other operation may be applied before the last one. */
  *steps(transaction: GlobalTransaction): Generator<void, void, undefined> {
    for (const [name, node] of this.#nodes.settle(this.#resyncing)) {
      yield;
      if (node !== undefined) transaction.setNode(node);
      else transaction.deleteNode(name);
    }
    for (const [key, service] of this.#services.settle(this.#resyncing)) {
      yield;
      if (service !== undefined) transaction.setService(service);
      else transaction.deleteService(key);
    }
    for (const key of this.#resyncing ? this.#sources.keys() : this.#touched) {
      yield;
      this.#writeSource(key, transaction);
    }
    this.#touched.clear();
    this.#size.sync();
    this.#resyncing = false;
    transaction.setComplete();
  }

  #writeSource(key: string, transaction: GlobalTransaction): void {
    const source = this.#sources.get(key);
    if (source === undefined) return;
    const { ref, infos } = source;
    const isChanged = [...infos.settle(this.#resyncing)].length > 0;
    if (infos.known.size === 0) this.#sources.delete(key);
    if (!isChanged) return;
    // In order of the hash, so that the order in which a server sends does not matter.
    const sorted = [...infos.known].sort(([a], [b]) => compareKeys(a, b));
    const { namespace, serviceName, sourceName: name } = ref;
    // The store changes the messages that it gets.
    const endpoints = Array.from(sorted, ([, { ...info }]) => info);
    transaction.setSource({ namespace, name, serviceName, endpoints });
  }
}

/** The entries of a set or of a source, and what the open change set says of them. */
class Entries<T extends object> {
  readonly known = new Map<string, T>();
  readonly #staged = new Map<string, Staged<T>>();

  discard(): void {
    this.#staged.clear();
  }

  /** An invalid operation removes nothing, neither from the state nor from the change set. */
  stage(key: string, value: Staged<T>, size: StateSize, prefixLength = 0): void {
    const previous = this.#staged.get(key);
    if (value === KEPT && previous !== undefined) return;
    this.#staged.set(key, value);
    const pathLength = prefixLength + key.length;
    size.stage({ pathLength, before: this.known.get(key), previous, value });
  }

  /** Makes the change set a part of the known state. Yields the changed entries; undefined: removed. */
  *settle(resyncing: boolean): Generator<readonly [string, T | undefined], void, undefined> {
    for (const [key, value] of this.#staged) {
      if (value === KEPT) continue;
      if (value === DELETED) this.known.delete(key);
      else this.known.set(key, value);
      yield [key, value === DELETED ? undefined : value];
    }
    for (const key of resyncing ? this.known.keys() : []) {
      if (this.#staged.has(key)) continue;
      this.known.delete(key);
      yield [key, undefined];
    }
    this.#staged.clear();
  }
}
