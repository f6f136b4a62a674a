import type { Endpoint, Service } from '../api/generated/localv1/api.ts';
import { comparePaths } from '../api/paths.ts';
import { StagedState } from './change-set.ts';
import type { LocalChange, LocalView, ServiceEntry } from './local-view.ts';

export interface LocalSync extends LocalChange {
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

/**
 * The state of one node, built from operations.
 *
 * Operations are staged and become visible all at once in `sync`, which also returns the real differences.
 *
 * Unchanged parts of an entry keep their objects: `before.service === after.service` means that the service did not
 * change, likewise for `endpoints`. They are never changed in place.
 */
export class LocalState extends StagedState implements LocalView {
  readonly #services = this.table<Service>('services');

  get size(): number {
    return this.#services.size;
  }

  get(key: string): ServiceEntry | undefined {
    const service = this.#services.get(key);
    return service && { key, service, endpoints: this.table<Endpoint>(key) };
  }

  *entries(): Generator<ServiceEntry, void, undefined> {
    for (const key of [...this.#services.keys()].sort(comparePaths)) {
      const entry = this.get(key);
      if (entry !== undefined) yield entry;
    }
  }

  /** Applies the change set and drops unconfirmed entries. */
  sync(): LocalSync {
    const changed = new Set<string>();
    const orphans: Orphans[] = [];
    for (const { name, changes, given } of this.commit()) {
      if (name === 'services') for (const key of changes.keys()) changed.add(key);
      else if (this.#services.has(name) && changes.size > 0) changed.add(name);
      // An invalid service has been reported already.
      if (this.#services.has(name) || this.isInvalid('services', name)) continue;
      const [endpoint] = name === 'services' ? [] : given;
      if (endpoint !== undefined) orphans.push({ service: name, endpoint, count: given.length });
    }
    return { view: this, changed, orphans };
  }
}
