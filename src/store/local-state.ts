import type { Endpoint, Service } from '../api/generated/localv1/api.ts';
import type { ChangeOp, DataOp } from '../api/ops.ts';
import { comparePaths } from '../api/paths.ts';
import { StagedState, type StateLimits } from './change-set.ts';
import type { LocalChange, LocalView, ServiceEntry } from './local-view.ts';

export interface LocalSync extends LocalChange {
  /** Number of operations since the last one, including the Sync. */
  readonly operations: number;
  readonly orphans: readonly Orphans[];
}

/** Endpoints that a change set brought for an unknown service; they are used when their service arrives. */
export interface Orphans {
  /** `namespace/name`. */
  readonly service: string;
  /** The key of the first of them. */
  readonly endpoint: string;
  readonly count: number;
}

type Endpoints = ReadonlyMap<string, Endpoint>;

/**
 * The state of one node, built from operations.
 *
 * Operations are staged and become visible all at once in `sync`, which also returns the real differences.
 *
 * Unchanged parts of an entry keep their objects: `before.service === after.service` means that the service did not
 * change, likewise for `endpoints`. They are never changed in place.
 */
export class LocalState implements LocalView {
  /** Services, and the endpoints of each service. Those whose service is missing wait for it. */
  readonly #state: StagedState;
  readonly #services: ReadonlyMap<string, Service>;
  #operations = 0;

  constructor(limits?: StateLimits) {
    this.#state = new StagedState(limits);
    this.#services = this.#state.table('services');
  }

  get size(): number {
    return this.#services.size;
  }

  get(key: string): ServiceEntry | undefined {
    const service = this.#services.get(key);
    return service && { key, service, endpoints: this.#state.table(key) as Endpoints };
  }

  *entries(): Generator<ServiceEntry, void, undefined> {
    for (const key of [...this.#services.keys()].sort(comparePaths)) {
      const entry = this.get(key);
      if (entry !== undefined) yield entry;
    }
  }

  /** See `StagedState.reset`: nothing is dropped before the next `sync`. */
  reset(): void {
    this.#state.reset();
  }

  /** Adds an operation to the change set. Throws as `StagedState.stage`. */
  apply(op: ChangeOp<DataOp>): void {
    this.#operations++;
    const target = op.kind === 'invalid' ? op.target : op;
    if (target?.kind === 'service') this.#state.stage('services', target.ref, op);
    else if (target?.kind === 'endpoint') {
      this.#state.stage(target.ref.service, target.ref.key, op);
    }
  }

  /** Applies the change set and drops unconfirmed entries. */
  sync(): LocalSync {
    const operations = this.#operations + 1;
    this.#operations = 0;
    const changed = new Set<string>();
    const orphans: Orphans[] = [];
    for (const { name, changes, given } of this.#state.sync()) {
      if (name === 'services') for (const key of changes.keys()) changed.add(key);
      else if (this.#services.has(name) && changes.size > 0) changed.add(name);
      // An invalid service has been reported already.
      if (this.#services.has(name) || this.#state.isInvalid('services', name)) continue;
      const [endpoint] = name === 'services' ? [] : given;
      if (endpoint !== undefined) orphans.push({ service: name, endpoint, count: given.length });
    }
    return { view: this, changed, operations, orphans };
  }
}
