import type { Endpoint, Service } from '../api/generated/localv1/api.ts';
import type { ChangeOp, DataOp } from '../api/ops.ts';
import { comparePaths } from '../api/paths.ts';
import { isEqual } from '../util/compare.ts';
import {
  ChangeSet,
  DELETED,
  KEPT,
  put,
  StateSize,
  type Staged,
  type StateLimits,
} from './change-set.ts';
import type { LocalChange, LocalView, ServiceEntry } from './local-view.ts';
import { SortedMap } from './sorted-map.ts';

/** Endpoints that a change set brought for an unknown service. */
export interface Orphans {
  /** `namespace/name`. */
  readonly service: string;
  /** The key of the first of them. */
  readonly endpoint: string;
  readonly count: number;
}

type Endpoints = SortedMap<Endpoint>;
const NO_ENDPOINTS: Endpoints = new SortedMap();

/**
 * The state of one node, built from operations.
 *
 * Operations are staged and become visible all at once in `sync`, which also returns the real differences. So readers
 * of the view see only complete states, and an aborted change set leaves no trace.
 *
 * Unchanged parts of an entry keep their objects: `before.service === after.service` means that the service did not
 * change, likewise for `endpoints`. They are never changed in place.
 */
export class LocalState implements LocalView {
  readonly #services = new Map<string, Service>();
  /** By service, never empty. Those whose service is missing wait for it. */
  readonly #endpoints = new Map<string, Endpoints>();
  readonly #size: StateSize;
  readonly #stagedServices: ChangeSet<Service>;
  readonly #stagedEndpoints = new Map<string, ChangeSet<Endpoint>>();
  #operations = 0;
  #newOrphans: Orphans[] = [];
  /** Keys of `#services` in path order; undefined when they have to be sorted again. */
  #order: string[] | undefined;

  constructor(limits?: StateLimits) {
    this.#size = new StateSize(limits);
    this.#stagedServices = new ChangeSet(this.#size);
  }

  get size(): number {
    return this.#services.size;
  }

  /** Endpoints of the last change set without a service; they are used when their service arrives. */
  get newOrphans(): readonly Orphans[] {
    return this.#newOrphans;
  }

  get(key: string): ServiceEntry | undefined {
    const service = this.#services.get(key);
    return service && { key, service, endpoints: this.#endpoints.get(key) ?? NO_ENDPOINTS };
  }

  *entries(): Generator<ServiceEntry, void, undefined> {
    this.#order ??= [...this.#services.keys()].sort(comparePaths);
    for (const key of this.#order) {
      const entry = this.get(key);
      if (entry !== undefined) yield entry;
    }
  }

  /**
   * The full data set follows: discards the open change set and marks every entry stale. Nothing is dropped before
   * the next `sync`.
   */
  reset(): void {
    this.#discard();
    this.#size.reset();
  }

  /** Number of operations, including Syncs, since the last call. */
  takeOperations(): number {
    const count = this.#operations;
    this.#operations = 0;
    return count;
  }

  /**
   * Adds an operation to the change set. Throws KPNG_STATE_TOO_LARGE if a limit is exceeded; the change set must then
   * be discarded.
   */
  apply(op: ChangeOp<DataOp>): void {
    this.#operations++;
    const target = op.kind === 'invalid' ? op.target : op;
    // Of the type that belongs to the target.
    const value = (op.kind === 'invalid' ? KEPT : (op.value ?? DELETED)) as Staged<never>;
    if (target?.kind === 'service') {
      const before = this.#services.get(target.ref);
      this.#stagedServices.stage(target.ref, equalOf(before, value), before);
    } else if (target?.kind === 'endpoint') {
      const { service, key } = target.ref;
      let staged = this.#stagedEndpoints.get(service);
      if (staged === undefined) {
        this.#stagedEndpoints.set(service, (staged = new ChangeSet(this.#size, service.length)));
      }
      const before = this.#endpoints.get(service)?.get(key);
      staged.stage(key, equalOf(before, value), before);
    }
  }

  /** Applies the change set and drops unconfirmed entries. */
  sync(): LocalChange {
    this.#operations++;
    const changed = new Set<string>();
    for (const [key, service] of this.#stagedServices.changes(this.#services)) {
      if (service === undefined || !this.#services.has(key)) this.#order = undefined;
      put(this.#services, key, service);
      changed.add(key);
    }
    for (const [key, staged] of this.#stagedEndpoints) {
      const before = this.#endpoints.get(key) ?? NO_ENDPOINTS;
      const after = before.with(staged.changes(before));
      if (after === before) continue;
      put(this.#endpoints, key, after.size === 0 ? undefined : after);
      if (this.#services.has(key)) changed.add(key);
    }
    for (const key of this.#size.resyncing ? this.#endpoints.keys() : []) {
      if (this.#stagedEndpoints.has(key)) continue;
      this.#endpoints.delete(key);
      if (this.#services.has(key)) changed.add(key);
    }
    this.#newOrphans = this.#orphans();
    this.#discard();
    this.#size.sync();
    return { view: this, changed };
  }

  /** An invalid service has been reported already. */
  #orphans(): Orphans[] {
    const orphans: Orphans[] = [];
    for (const [service, staged] of this.#stagedEndpoints) {
      if (this.#services.has(service) || this.#stagedServices.get(service) === KEPT) continue;
      const [endpoint, ...others] = staged.keysSet();
      if (endpoint !== undefined) orphans.push({ service, endpoint, count: others.length + 1 });
    }
    return orphans;
  }

  #discard(): void {
    this.#stagedServices.clear();
    this.#stagedEndpoints.clear();
  }
}

/**
 * The old value if the new one is equal. Compared when an operation arrives: in `sync`, a large state would be
 * compared all at once.
 */
function equalOf<T extends object>(before: T | undefined, value: Staged<T>): Staged<T> {
  return before !== undefined && isEqual(before, value) ? before : value;
}
