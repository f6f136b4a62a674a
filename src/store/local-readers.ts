import { isEqual } from '../util/compare.ts';
import type { GlobalStore } from './global-store.ts';
import {
  LocalDeltas,
  serviceChange,
  type ServiceChange,
  type ServiceDelta,
  type Side,
} from './local-deltas.ts';
import { type ChangeSet, type Position, Readers } from './reader.ts';
import type { ServiceRecord } from './service-record.ts';
import { type Entry, type LocalEndpoint, localServiceEntry } from './stored.ts';
import { type Cell, compareKeys, sorter } from './table.ts';

type ServiceCell = Cell<ServiceRecord>;

/** Change sets of up to this many services are computed at once; larger ones while they are sent. */
const SMALL = 1000;

/** Node-local views as the local API sends them. */
export class LocalReaders extends Readers {
  readonly #deltas: LocalDeltas;
  /** The cells that have changed since a revision, by key: most clients have seen the same one. */
  readonly #changed = new Map<number, readonly ServiceCell[]>();
  /** Frames of change sets that are the same for many nodes, by their deltas. */
  readonly #frames = new Map<string, readonly Buffer[]>();
  readonly #byEndpointPath = sorter<ServiceRecord>(byEndpointPath);

  constructor(store: GlobalStore) {
    super(store);
    this.#deltas = new LocalDeltas(store.hasher);
  }

  protected clear(): void {
    this.#deltas.clear();
    this.#changed.clear();
    this.#frames.clear();
  }

  protected between(from: Position | undefined, to: Position): ChangeSet | undefined {
    const sidesOf = (cell: ServiceCell): [Side, Side] => [
      { record: from && cell.at(from.pin.revision), node: from?.node ?? to.node },
      { record: cell.at(to.pin.revision), node: to.node },
    ];
    const deltaOf = (cell: ServiceCell) => this.#deltas.between(...sidesOf(cell));
    const cells = this.#cellsThatMayDiffer(from, to);
    if (cells.length <= SMALL) {
      const deltas = cells.map(deltaOf).filter((each) => each !== undefined);
      return deltas.length === 0 ? undefined : this.#smallChangeSet(deltas);
    }
    // The state may be large and its reader slow, so everything is built on demand.
    if (!cells.some((cell) => deltaOf(cell) !== undefined)) return undefined;
    const services = present(cells, (cell) => serviceChange(...sidesOf(cell)));
    const sorted = this.#byEndpointPath(cells);
    const endpoints = () => present(sorted, deltaOf);
    return framesOf(services, endpoints, from === undefined);
  }

  #smallChangeSet(deltas: readonly ServiceDelta[]): ChangeSet {
    const signature = signatureOf(deltas);
    const known = signature === undefined ? undefined : this.#frames.get(signature);
    if (known !== undefined) return known;
    const sorted = deltas.length < 2 ? deltas : [...deltas].sort(byEndpointPath);
    const frames = [...framesOf(deltas, () => sorted, false)];
    if (signature === undefined) return frames;
    const joined = [Buffer.concat(frames)];
    this.#frames.set(signature, joined);
    return joined;
  }

  /** In order of the key. */
  #cellsThatMayDiffer(from: Position | undefined, to: Position): readonly ServiceCell[] {
    const { services } = this.store;
    if (from === undefined || !isEqual(from.node, to.node)) return services.cells();
    const { revision } = from.pin;
    let changed = this.#changed.get(revision);
    if (changed === undefined) {
      changed = [...services.changedSince(revision)].sort((a, b) => compareKeys(a.key, b.key));
      this.#changed.set(revision, changed);
    }
    return changed;
  }
}

/** Endpoint paths sort differently from those of their services: `a-b/x` comes before `a/x`. */
function byEndpointPath(a: { readonly key: string }, b: { readonly key: string }): number {
  return compareKeys(`${a.key}/`, `${b.key}/`);
}

/** What is made of the cells, when it is needed, without undefined. */
function* present<T>(
  cells: readonly ServiceCell[],
  make: (cell: ServiceCell) => T | undefined,
): Generator<T, void, undefined> {
  for (const cell of cells) {
    const made = make(cell);
    if (made !== undefined) yield made;
  }
}

/** The ids of the deltas, if all are shared; undefined: the change set is for one node. */
function signatureOf(deltas: readonly ServiceDelta[]): string | undefined {
  const ids = deltas.map(({ sharedAs }) => sharedAs);
  return ids.includes(undefined) ? undefined : ids.join();
}

/**
 * The operations in kpng's order: services are set before their endpoints and deleted after them. Within a step, sets
 * are in path order, deletions in reverse.
 *
 * `services` and `endpoints` are in order of the paths that they are sent with. `complete`: from nothing to a state, so
 * nothing can have been deleted.
 */
function* framesOf(
  services: Iterable<ServiceChange>,
  endpoints: () => Iterable<ServiceDelta>,
  complete: boolean,
): Generator<Buffer, void, undefined> {
  const gone: Entry[] = [];
  for (const { service, removed } of services) {
    if (service !== undefined) yield localServiceEntry(service).frame;
    if (removed !== undefined) gone.push(localServiceEntry(removed));
  }
  const deleted = complete ? [] : deletedEndpoints(endpoints());
  for (const each of deleted) if (!each.named) yield each.deletion();
  const withAnonymous: ServiceDelta[] = [];
  for (const delta of endpoints()) {
    yield* setFrames(delta, true);
    if (hasAnonymous(delta)) withAnonymous.push(delta);
  }
  for (const each of deleted) if (each.named) yield each.deletion();
  for (const delta of withAnonymous) yield* setFrames(delta, false);
  for (const each of gone.reverse()) yield each.deletion();
}

/** The frames that set endpoints with, or without a pod's name; for a whole service in one piece. */
function* setFrames(delta: ServiceDelta, named: boolean): Generator<Buffer, void, undefined> {
  if (delta.whole === undefined) {
    for (const each of delta.sets) if (each.named === named) yield each.frame;
    return;
  }
  const frames = delta.whole.frames(named);
  if (frames.length > 0) yield frames;
}

function hasAnonymous({ whole, sets }: ServiceDelta): boolean {
  return whole === undefined ? sets.some(({ named }) => !named) : whole.frames(false).length > 0;
}

function deletedEndpoints(deltas: Iterable<ServiceDelta>): readonly LocalEndpoint[] {
  const ascending: LocalEndpoint[] = [];
  for (const { deletes } of deltas) for (const each of deletes.toReversed()) ascending.push(each);
  return ascending.reverse();
}
