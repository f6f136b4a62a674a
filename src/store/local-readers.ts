import type { GlobalStore } from './global-store.ts';
import type { Pin } from './history.ts';
import { LocalDeltas, serviceChange, type ServiceDelta, type Side } from './local-deltas.ts';
import { framesOf } from './local-frames.ts';
import {
  openReader,
  type ChangeSet,
  type Differ,
  type Position,
  type Reader,
  type ReaderOptions,
  type Readers,
} from './reader.ts';
import type { ViewNode } from './selection.ts';
import type { ServiceRecord } from './service-record.ts';
import { compareKeys, type Cell } from './table.ts';

type ServiceCell = Cell<ServiceRecord>;

/** A state as one node sees it. */
interface NodePosition extends Position {
  readonly node: ViewNode;
}

/** Change sets of up to so many services are worked out at once; larger ones while they are sent. */
const SMALL = 1000;

/** Readers of node-local views. */
export class LocalReaders implements Readers, Differ<NodePosition> {
  readonly #store: GlobalStore;
  readonly #deltas = new LocalDeltas();
  #revision = 0;
  /** Frames of change sets that are the same for many nodes, by their deltas. */
  readonly #frames = new Map<string, readonly Buffer[]>();
  /** The cells that have changed since a revision, by key: most clients have seen the same one. */
  readonly #changed = new Map<number, readonly ServiceCell[]>();
  #inEndpointOrder: { cells: readonly ServiceCell[]; sorted: readonly ServiceCell[] } | undefined;

  constructor(store: GlobalStore) {
    this.#store = store;
  }

  open(options: ReaderOptions): Reader {
    return openReader(this.#store, this, options);
  }

  positionAt(pin: Pin, nodeName: string): NodePosition {
    return { pin, node: this.#store.viewNode(nodeName) };
  }

  isCurrent({ pin, node }: NodePosition, nodeName: string): boolean {
    return pin.revision === this.#store.revision && node.name === nodeName;
  }

  between(from: NodePosition | undefined, to: NodePosition): ChangeSet | undefined {
    if (this.#revision !== this.#store.revision) {
      this.#revision = this.#store.revision;
      this.#deltas.clear();
      this.#frames.clear();
      this.#changed.clear();
    }
    const cells = this.#cellsThatMayDiffer(from, to);
    const sidesOf = (cell: ServiceCell): [Side, Side] => [
      {
        record: from === undefined ? undefined : cell.at(from.pin.revision),
        node: from?.node ?? to.node,
      },
      { record: cell.at(to.pin.revision), node: to.node },
    ];
    if (cells.length > SMALL) return this.#largeChangeSet(cells, sidesOf, from === undefined);
    const deltas = cells
      .map((cell) => this.#deltas.between(...sidesOf(cell)))
      .filter((each) => each !== undefined);
    return deltas.length === 0 ? undefined : this.#smallChangeSet(deltas);
  }

  /** In order of the key. */
  #cellsThatMayDiffer(from: NodePosition | undefined, to: NodePosition): readonly ServiceCell[] {
    const { services } = this.#store;
    const sameNode = from?.node.name === to.node.name && from.node.zone === to.node.zone;
    if (from === undefined || !sameNode) return services.cells();
    const { revision } = from.pin;
    let changed = this.#changed.get(revision);
    if (changed === undefined) {
      changed = [...services.changedSince(revision)].sort(byKey);
      this.#changed.set(revision, changed);
    }
    return changed;
  }

  #smallChangeSet(deltas: readonly ServiceDelta[]): ChangeSet {
    const signature = signatureOf(deltas);
    const known = signature === undefined ? undefined : this.#frames.get(signature);
    if (known !== undefined) return known;
    const sorted = deltas.length < 2 ? deltas : [...deltas].sort(byEndpointPath);
    const frames = [...framesOf({ services: deltas, endpoints: sorted, complete: false })];
    if (signature === undefined) return frames;
    const joined = [Buffer.concat(frames)];
    this.#frames.set(signature, joined);
    return joined;
  }

  /** The state may be large and its reader slow, so nothing is made before it is asked for. */
  #largeChangeSet(
    cells: readonly ServiceCell[],
    sidesOf: (cell: ServiceCell) => [Side, Side],
    complete: boolean,
  ): ChangeSet | undefined {
    const delta = (cell: ServiceCell): ServiceDelta | undefined =>
      this.#deltas.between(...sidesOf(cell));
    if (!cells.some((cell) => delta(cell) !== undefined)) return undefined;
    if (this.#inEndpointOrder?.cells !== cells) {
      const sorted = [...cells].sort((a, b) => compareKeys(`${a.key}/`, `${b.key}/`));
      this.#inEndpointOrder = { cells, sorted };
    }
    const services = lazily(cells, (cell) => serviceChange(...sidesOf(cell)));
    const endpoints = lazily(this.#inEndpointOrder.sorted, delta);
    return framesOf({ services, endpoints, complete });
  }
}

/** What there is of each, made anew each time that it is gone through. */
function lazily<T>(
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

function byKey(a: ServiceCell, b: ServiceCell): number {
  return compareKeys(a.key, b.key);
}

/** Paths of endpoints sort otherwise than those of their services: `a-b/x` comes before `a/x`. */
function byEndpointPath(a: ServiceDelta, b: ServiceDelta): number {
  return compareKeys(`${a.key}/`, `${b.key}/`);
}

/** Equal for equal change sets; undefined when a part of it is for one node only. */
function signatureOf(deltas: readonly ServiceDelta[]): string | undefined {
  const ids: number[] = [];
  for (const { sharedAs } of deltas) {
    if (sharedAs === undefined) return undefined;
    ids.push(sharedAs);
  }
  return ids.join();
}
