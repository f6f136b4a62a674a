import type { DataOp } from '../api/ops.ts';
import type { GlobalStore } from './global-store.ts';
import type { Pin } from './history.ts';
import { LocalDeltas, type ServiceDelta, type Side } from './local-deltas.ts';
import {
  type ChangeSet,
  type Differ,
  type Position,
  type Reader,
  type ReaderOptions,
  type Readers,
  openReader,
} from './reader.ts';
import type { ViewNode } from './selection.ts';
import type { ServiceRecord } from './service-record.ts';
import { type Cell, compareKeys } from './table.ts';

export type ServiceCell = Cell<ServiceRecord>;

/** A state as one node sees it. */
export interface NodePosition extends Position {
  readonly node: ViewNode;
}

/** Readers of node-local views; a subclass defines the form. */
export abstract class LocalViewReaders<T> implements Readers<T>, Differ<NodePosition, T> {
  readonly #store: GlobalStore;
  readonly #deltas = new LocalDeltas();
  #revision = 0;
  /** The cells that have changed since a revision, by key: most clients have seen the same one. */
  readonly #changed = new Map<number, readonly ServiceCell[]>();

  constructor(store: GlobalStore) {
    this.#store = store;
  }

  open(options: ReaderOptions): Reader<T> {
    return openReader(this.#store, this, options);
  }

  positionAt(pin: Pin, nodeName: string, clusterScope: boolean): NodePosition {
    return { pin, node: { ...this.#store.viewNode(nodeName), clusterScope } };
  }

  isCurrent({ pin, node }: NodePosition, nodeName: string, clusterScope: boolean): boolean {
    if (pin.revision !== this.#store.revision) return false;
    return node.name === nodeName && node.clusterScope === clusterScope;
  }

  between(from: NodePosition | undefined, to: NodePosition): ChangeSet<T> | undefined {
    if (this.#revision !== this.#store.revision) {
      this.#revision = this.#store.revision;
      this.#deltas.clear();
      this.#changed.clear();
      this.revisionChanged();
    }
    const sidesOf = (cell: ServiceCell): [Side, Side] => [
      {
        record: from === undefined ? undefined : cell.at(from.pin.revision),
        node: from?.node ?? to.node,
      },
      { record: cell.at(to.pin.revision), node: to.node },
    ];
    const deltaOf = (cell: ServiceCell) => this.#deltas.between(...sidesOf(cell));
    const cells = this.#cellsThatMayDiffer(from, to);
    return this.changeSet({ cells, sidesOf, deltaOf, complete: from === undefined });
  }

  /** Undefined or empty when nothing differs. */
  protected abstract changeSet(comparison: Comparison): ChangeSet<T> | undefined;

  /** Results for the previous revision are no longer of use. */
  protected revisionChanged(): void {}

  /** In order of the key. */
  #cellsThatMayDiffer(from: NodePosition | undefined, to: NodePosition): readonly ServiceCell[] {
    const { services } = this.#store;
    if (from === undefined || !isSameNode(from.node, to.node)) return services.cells();
    const { revision } = from.pin;
    let changed = this.#changed.get(revision);
    if (changed === undefined) {
      changed = [...services.changedSince(revision)].sort((a, b) => compareKeys(a.key, b.key));
      this.#changed.set(revision, changed);
    }
    return changed;
  }
}

function isSameNode(a: ViewNode, b: ViewNode): boolean {
  return a.name === b.name && a.zone === b.zone && a.clusterScope === b.clusterScope;
}

/** Two states of one node's view. */
export interface Comparison {
  /** The services that may differ, in order of the key. */
  readonly cells: readonly ServiceCell[];
  readonly sidesOf: (cell: ServiceCell) => [Side, Side];
  /** Undefined: nothing differs. */
  readonly deltaOf: (cell: ServiceCell) => ServiceDelta | undefined;
  /** From nothing to a state. */
  readonly complete: boolean;
}

/** A lazy sequence, rebuilt for each iteration. */
export function lazily<T>(
  cells: readonly ServiceCell[],
  make: (cell: ServiceCell) => T | undefined,
): Iterable<T> {
  return {
    *[Symbol.iterator]() {
      for (const cell of cells) {
        const made = make(cell);
        if (made !== undefined) yield made;
      }
    },
  };
}

/** Node-local views as operations, for a state within this process. */
export class LocalOps extends LocalViewReaders<DataOp> {
  protected override changeSet({ cells, deltaOf }: Comparison): ChangeSet<DataOp> | undefined {
    const deltas = lazily(cells, deltaOf);
    const { done } = deltas[Symbol.iterator]().next();
    return done === true ? undefined : operationsOf(deltas);
  }
}

function* operationsOf(deltas: Iterable<ServiceDelta>): Generator<DataOp, void, undefined> {
  for (const { key, service, removed, sets, deletes } of deltas) {
    for (const each of deletes) yield { kind: 'deleteEndpoint', key, endpointKey: each.key };
    if (removed !== undefined) yield { kind: 'deleteService', key };
    if (service !== undefined) yield { kind: 'setService', key, service: service.service };
    for (const { key: endpointKey, endpoint } of sets) {
      yield { kind: 'setEndpoint', key, endpointKey, endpoint };
    }
  }
}
