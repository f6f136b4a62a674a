import { isDeepStrictEqual } from 'node:util';
import type { Endpoint, Service } from '../api/generated/localv1/api.ts';
import type { DataOp, InvalidOp } from '../api/ops.ts';
import { comparePaths } from '../api/paths.ts';
import type { LocalChange, LocalView, ServiceEntry } from './local-view.ts';
import { SortedMap } from './sorted-map.ts';
import { DELETED, KEPT, StateSize, type Staged, type StateLimits } from './staged.ts';

interface StagedService {
  service: Staged<Service> | undefined;
  readonly endpoints: Map<string, Staged<Endpoint>>;
}

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
 * An unchanged entry keeps its object: `before.service === after.service` means that the service did not change,
 * likewise for `endpoints`. Entries are never changed in place.
 */
export class LocalState implements LocalView {
  readonly #entries = new Map<string, ServiceEntry & { readonly endpoints: Endpoints }>();
  /** Endpoints whose service is missing. They wait for it. */
  readonly #orphans = new Map<string, Endpoints>();
  #staged = new Map<string, StagedService>();
  #operations = 0;
  /** After a reset, all entries are unconfirmed until the next sync. */
  #resyncing = false;
  #newOrphans: Orphans[] = [];
  readonly #size: StateSize | undefined;
  /** Keys of `#entries` in path order; undefined when they have to be sorted again. */
  #order: string[] | undefined;

  /** `limits`: for operations from another program. Default: none. */
  constructor(limits?: StateLimits) {
    this.#size = limits && new StateSize(limits);
  }

  get size(): number {
    return this.#entries.size;
  }

  /** Endpoints of the last change set without a service; they are used when their service arrives. */
  get newOrphans(): readonly Orphans[] {
    return this.#newOrphans;
  }

  get(key: string): ServiceEntry | undefined {
    return this.#entries.get(key);
  }

  *entries(): Generator<ServiceEntry, void, undefined> {
    this.#order ??= [...this.#entries.keys()].sort(comparePaths);
    for (const key of this.#order) {
      const entry = this.#entries.get(key);
      if (entry !== undefined) yield entry;
    }
  }

  /**
   * The full data set follows: discards the open change set and marks every entry stale. Nothing is dropped before
   * the next `sync`.
   */
  reset(): void {
    this.#staged.clear();
    this.#size?.reset();
    this.#resyncing = true;
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
  apply(op: DataOp | InvalidOp): void {
    this.#operations++;
    switch (op.kind) {
      case 'setService':
        this.#stageService(op.key, op.service);
        break;
      case 'deleteService':
        this.#stageService(op.key, DELETED);
        break;
      case 'setEndpoint':
        this.#stageEndpoint(op.key, op.endpointKey, op.endpoint);
        break;
      case 'deleteEndpoint':
        this.#stageEndpoint(op.key, op.endpointKey, DELETED);
        break;
      case 'invalid':
        if (op.target?.kind === 'service') this.#stageService(op.target.service, KEPT);
        if (op.target?.kind === 'endpoint') {
          this.#stageEndpoint(op.target.service, op.target.endpoint, KEPT);
        }
        break;
    }
  }

  /** Applies the change set and drops unconfirmed entries. */
  sync(): LocalChange {
    this.#operations++;
    const changed = new Set<string>();
    const resyncing = this.#resyncing;
    const staged = this.#staged;
    this.#resyncing = false;
    this.#staged = new Map();
    this.#size?.sync();
    this.#newOrphans = [];
    for (const [key, change] of staged) {
      if (this.#settle(key, change, resyncing)) changed.add(key);
    }
    if (resyncing) this.#dropStale(staged, changed);
    return { view: this, changed };
  }

  /** Also those that wait for their service. */
  #endpointsOf(key: string): Endpoints {
    return this.#entries.get(key)?.endpoints ?? this.#orphans.get(key) ?? NO_ENDPOINTS;
  }

  #stage(key: string): StagedService {
    let staged = this.#staged.get(key);
    if (staged === undefined) {
      staged = { service: undefined, endpoints: new Map() };
      this.#staged.set(key, staged);
    }
    return staged;
  }

  /** An invalid operation removes nothing, neither from the state nor from the change set. */
  #stageService(key: string, value: Staged<Service>): void {
    const staged = this.#stage(key);
    const previous = staged.service;
    if (value === KEPT && previous !== undefined) return;
    const before = this.#entries.get(key)?.service;
    staged.service = equalOf(before, value);
    this.#size?.stage({ pathLength: key.length, before, previous, value: staged.service });
  }

  #stageEndpoint(key: string, endpointKey: string, value: Staged<Endpoint>): void {
    const { endpoints } = this.#stage(key);
    const previous = endpoints.get(endpointKey);
    if (value === KEPT && previous !== undefined) return;
    const before = this.#endpointsOf(key).get(endpointKey);
    const next = equalOf(before, value);
    endpoints.set(endpointKey, next);
    const pathLength = key.length + endpointKey.length;
    this.#size?.stage({ pathLength, before, previous, value: next });
  }

  /** An invalid service has been reported already. */
  #noteOrphans(service: string, change: StagedService): void {
    if (change.service === KEPT) return;
    const set = [...change.endpoints].filter(([, each]) => each !== DELETED && each !== KEPT);
    const [endpoint] = set[0] ?? [];
    if (endpoint !== undefined) this.#newOrphans.push({ service, endpoint, count: set.length });
  }

  #dropStale(staged: ReadonlyMap<string, StagedService>, changed: Set<string>): void {
    for (const key of this.#orphans.keys()) {
      if (!staged.has(key)) this.#orphans.delete(key);
    }
    for (const key of this.#entries.keys()) {
      if (staged.has(key)) continue;
      this.#entries.delete(key);
      this.#order = undefined;
      changed.add(key);
    }
  }

  /** Applies a change to one service and its endpoints. Returns whether the view differs. */
  #settle(key: string, change: StagedService, resyncing: boolean): boolean {
    const before = this.#entries.get(key);
    const oldEndpoints = this.#endpointsOf(key);
    const service = settle(before?.service, change.service, resyncing);
    const endpoints = settleEndpoints(oldEndpoints, change.endpoints, resyncing);
    if (service !== undefined && service === before?.service && endpoints === oldEndpoints) {
      return false;
    }
    this.#orphans.delete(key);
    if (service !== undefined) {
      this.#entries.set(key, { key, service, endpoints });
      if (before === undefined) this.#order = undefined;
      return true;
    }
    if (endpoints.size > 0) this.#orphans.set(key, endpoints);
    this.#noteOrphans(key, change);
    if (!this.#entries.delete(key)) return false;
    this.#order = undefined;
    return true;
  }
}

/**
 * The old value if the new one is equal. Compared when an operation arrives: in `sync`, a large state would be
 * compared all at once.
 */
function equalOf<T extends object>(before: T | undefined, value: Staged<T>): Staged<T> {
  return before !== undefined && isDeepStrictEqual(before, value) ? before : value;
}

function settle<T extends object>(
  before: T | undefined,
  change: Staged<T> | undefined,
  resyncing: boolean,
): T | undefined {
  if (change === undefined) return resyncing ? undefined : before;
  if (change === DELETED) return undefined;
  return change === KEPT ? before : change;
}

/** Entries outside the change set stay, possibly very many; in a resync they are dropped. */
function settleEndpoints(
  before: Endpoints,
  changes: ReadonlyMap<string, Staged<Endpoint>>,
  resyncing: boolean,
): Endpoints {
  const settled = new Map<string, Endpoint | undefined>();
  if (resyncing) for (const key of before.keys()) settled.set(key, undefined);
  for (const [key, change] of changes) settled.set(key, settle(before.get(key), change, resyncing));
  return before.with(settled);
}
