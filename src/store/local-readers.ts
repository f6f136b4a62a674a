import { serviceChange, type ServiceChange, type ServiceDelta } from './local-deltas.ts';
import {
  lazily,
  LocalViewReaders,
  type Comparison,
  type ServiceCell,
} from './local-view-readers.ts';
import type { ChangeSet } from './reader.ts';
import type { Entry, LocalEndpoint } from './stored.ts';
import { compareKeys } from './table.ts';

/** Change sets of up to this many services are computed at once; larger ones while they are sent. */
const SMALL = 1000;

/** Node-local views as the local API sends them. */
export class LocalReaders extends LocalViewReaders<Buffer> {
  /** Frames of change sets that are the same for many nodes, by their deltas. */
  readonly #frames = new Map<string, readonly Buffer[]>();
  #inEndpointOrder: { cells: readonly ServiceCell[]; sorted: readonly ServiceCell[] } | undefined;

  protected override revisionChanged(): void {
    this.#frames.clear();
  }

  protected override changeSet(comparison: Comparison): ChangeSet | undefined {
    const { cells, deltaOf } = comparison;
    if (cells.length > SMALL) return this.#largeChangeSet(comparison);
    const deltas = cells.map(deltaOf).filter((each) => each !== undefined);
    return deltas.length === 0 ? undefined : this.#smallChangeSet(deltas);
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

  /** The state may be large and its reader slow, so everything is built on demand. */
  #largeChangeSet({ cells, sidesOf, deltaOf, complete }: Comparison): ChangeSet | undefined {
    if (!cells.some((cell) => deltaOf(cell) !== undefined)) return undefined;
    if (this.#inEndpointOrder?.cells !== cells) {
      const sorted = [...cells].sort((a, b) => compareKeys(`${a.key}/`, `${b.key}/`));
      this.#inEndpointOrder = { cells, sorted };
    }
    const services = lazily(cells, (cell) => serviceChange(...sidesOf(cell)));
    const endpoints = lazily(this.#inEndpointOrder.sorted, deltaOf);
    return framesOf({ services, endpoints, complete });
  }
}

/** Endpoint paths sort differently from those of their services: `a-b/x` comes before `a/x`. */
function byEndpointPath(a: ServiceDelta, b: ServiceDelta): number {
  return compareKeys(`${a.key}/`, `${b.key}/`);
}

/** Equal for equal change sets; undefined when part of it is for one node only. */
function signatureOf(deltas: readonly ServiceDelta[]): string | undefined {
  const ids: number[] = [];
  for (const { sharedAs } of deltas) {
    if (sharedAs === undefined) return undefined;
    ids.push(sharedAs);
  }
  return ids.join();
}

/** The parts of a change set. Each list is iterated more than once and may be built lazily. */
interface LocalChanges {
  /** In order of the services' paths. */
  readonly services: Iterable<ServiceChange>;
  /** In order of the endpoints' paths. */
  readonly endpoints: Iterable<ServiceDelta>;
  /** From nothing to a state: nothing can have been deleted. */
  readonly complete: boolean;
}

/**
 * The operations in kpng's order: services are set before their endpoints and deleted after them. Within a step, sets
 * are in path order, deletions in reverse.
 */
function* framesOf({
  services,
  endpoints,
  complete,
}: LocalChanges): Generator<Buffer, void, undefined> {
  const gone: Entry[] = [];
  for (const { service, removed } of services) {
    if (service !== undefined) yield service.local().frame;
    if (removed !== undefined) gone.push(removed.local());
  }
  const deleted = complete ? [] : deletedEndpoints(endpoints);
  for (const each of deleted) if (!each.named) yield each.deletion();
  const withAnonymous: ServiceDelta[] = [];
  for (const delta of endpoints) {
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
