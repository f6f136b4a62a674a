import type { DataOp } from '../api/ops.ts';
import type { GlobalStore } from './global-store.ts';
import type { Pin } from './history.ts';
import { LocalDeltas, type ServiceDelta } from './local-deltas.ts';
import type { ViewNode } from './selection.ts';
import type { ServiceRecord } from './service-record.ts';
import type { Cell } from './table.ts';

interface Position {
  readonly pin: Pin;
  readonly node: ViewNode;
}

/** Follows the view that one node has of a store. */
export class LocalFollower {
  readonly #store: GlobalStore;
  readonly #nodeName: string;
  readonly #deltas = new LocalDeltas();
  #at: Position | undefined;

  constructor(store: GlobalStore, nodeName: string) {
    this.#store = store;
    this.#nodeName = nodeName;
  }

  /** Whether the next operations tell the whole state, and whatever is not in it has gone. */
  get isNew(): boolean {
    return this.#at === undefined;
  }

  /** Whether there is something to take. */
  differs(): boolean {
    if (!this.#store.synced) return false;
    if (this.#at === undefined) return true;
    const position = this.#position();
    for (const cell of this.#cellsThatMayDiffer(this.#at, position)) {
      if (this.#delta(cell, this.#at, position) === undefined) continue;
      position.pin.release();
      return true;
    }
    this.#arrive(position);
    return false;
  }

  /**
   * What leads from the state that was taken last to the newest one. The store may change while this is
   * gone through; that is taken the next time.
   */
  *operations(): Generator<DataOp, void, undefined> {
    const from = this.#at;
    const to = this.#position();
    // From now on the place is at the end, whatever becomes of the two positions meanwhile.
    this.#at = this.#position();
    // The order of changes, which the cells are in, changes with the store.
    const cells = [...this.#cellsThatMayDiffer(from, to)];
    for (const cell of cells) {
      const delta = this.#delta(cell, from, to);
      if (delta !== undefined) yield* operationsOf(delta);
    }
    this.#deltas.clear();
    from?.pin.release();
    to.pin.release();
  }

  close(): void {
    this.#arrive(undefined);
  }

  #position(): Position {
    const pin = this.#store.pin(() => {
      pin.release();
      if (this.#at?.pin === pin) this.#at = undefined;
    });
    return { pin, node: this.#store.viewNode(this.#nodeName) };
  }

  #cellsThatMayDiffer(from: Position | undefined, to: Position): Iterable<Cell<ServiceRecord>> {
    const { services } = this.#store;
    const moved = from?.node.zone !== to.node.zone;
    return from === undefined || moved
      ? services.cells()
      : services.changedSince(from.pin.revision);
  }

  #delta(
    cell: Cell<ServiceRecord>,
    from: Position | undefined,
    to: Position,
  ): ServiceDelta | undefined {
    const older = from === undefined ? undefined : cell.at(from.pin.revision);
    return this.#deltas.between(
      { record: older, node: (from ?? to).node },
      { record: cell.at(to.pin.revision), node: to.node },
    );
  }

  #arrive(position: Position | undefined): void {
    this.#deltas.clear();
    this.#at?.pin.release();
    this.#at = position;
  }
}

function* operationsOf(delta: ServiceDelta): Generator<DataOp, void, undefined> {
  const { key, service, removed, sets, deletes } = delta;
  for (const each of deletes) yield { kind: 'deleteEndpoint', key, endpointKey: each.key };
  if (removed !== undefined) yield { kind: 'deleteService', key };
  if (service !== undefined) yield { kind: 'setService', key, service: service.service };
  for (const { key: endpointKey, endpoint } of sets) {
    yield { kind: 'setEndpoint', key, endpointKey, endpoint };
  }
}
