import type { Hasher } from '../api/hash.ts';
import { isEqual } from '../util/compare.ts';
import { type ChangeSet, inOnePiece, type Position, Readers, SMALL } from './reader.ts';
import type { ViewNode } from './selection.ts';
import { NO_VIEW, type ServiceRecord, type SharedEndpoints, type View } from './service-views.ts';
import {
  difference,
  type Entry,
  isSameEntry,
  type LocalEndpoint,
  localServiceEntry,
} from './stored.ts';
import { compareKeys } from './table.ts';

/** Node-local views as the local API sends them. */
export class LocalReaders extends Readers {
  protected between(from: Position | undefined, to: Position): ChangeSet | undefined {
    const { services, hasher } = this.store;
    const shared = this.once('deltas', () => new LocalDeltas(hasher));
    const sidesOf = (key: string): [Side, Side] => [
      { record: services.at(key, from?.revision ?? 0), node: from?.node ?? to.node },
      { record: services.at(key, to.revision), node: to.node },
    ];
    const changeOf = (key: string) => {
      const [before, after] = sidesOf(key).map(({ record }) => record);
      if (before?.service === after?.service) return undefined;
      return [serviceEntry(before), serviceEntry(after)];
    };
    const deltaOf = (key: string) => shared.between(...sidesOf(key));
    const since = from !== undefined && isEqual(from.node, to.node) ? from.revision : 0;
    // Most clients have seen the same revision.
    const [keys, sorted] = this.once(`changed since ${since}`, () => [
      services.keys(undefined, since),
      services.keys(byEndpointPath, since),
    ]) as [readonly string[], readonly string[]];
    if (keys.length > SMALL) {
      // The state may be large and its reader slow, so everything is built on demand.
      if (sorted.every((key) => deltaOf(key) === undefined)) return undefined;
      return framesOf(present(keys, changeOf), present(sorted, deltaOf), from === undefined);
    }
    const deltas = sorted.map(deltaOf).filter((each) => each !== undefined);
    if (deltas.length === 0) return undefined;
    const frames = () => framesOf(present(keys, changeOf), deltas, from === undefined);
    const ids = deltas.map(({ sharedAs }) => sharedAs);
    // With a delta for one node, the change set is for that one only.
    return ids.includes(undefined) ? inOnePiece([...frames()]) : this.joined(ids.join(), frames);
  }
}

/** Endpoint paths sort differently from those of their services: `a-b/x` comes before `a/x`. */
function byEndpointPath(a: string, b: string): number {
  return compareKeys(`${a}/`, `${b}/`);
}

/** What is made of the keys, whenever it is needed, without undefined. */
function present<T>(keys: readonly string[], make: (key: string) => T | undefined): Iterable<T> {
  return {
    *[Symbol.iterator]() {
      for (const key of keys) {
        const made = make(key);
        if (made !== undefined) yield made;
      }
    },
  };
}

/**
 * The operations in kpng's order: services are set before their endpoints and deleted after them. Within a step, sets
 * are in path order, deletions in reverse.
 *
 * `services` and `endpoints` are in order of the paths that they are sent with. `complete`: from nothing to a state, so
 * nothing can have been deleted.
 */
function* framesOf(
  services: Iterable<readonly (Entry | undefined)[]>,
  endpoints: Iterable<EndpointDelta>,
  complete: boolean,
): Generator<Buffer, void, undefined> {
  const gone: Entry[] = [];
  for (const [before, after] of services) {
    yield* difference(before, after, gone);
  }
  const deleted = complete ? [] : deletedEndpoints(endpoints);
  for (const each of deleted) if (!each.named) yield each.deletion();
  const withAnonymous: EndpointDelta[] = [];
  for (const delta of endpoints) {
    yield* setFrames(delta, true);
    if (hasAnonymous(delta)) withAnonymous.push(delta);
  }
  for (const each of deleted) if (each.named) yield each.deletion();
  for (const delta of withAnonymous) yield* setFrames(delta, false);
  for (const each of gone.reverse()) yield each.deletion();
}

/** The frames that set endpoints with, or without a pod's name; for a whole service in one piece. */
function* setFrames(delta: EndpointDelta, named: boolean): Generator<Buffer, void, undefined> {
  if (delta.whole === undefined) {
    for (const each of delta.sets) if (each.named === named) yield each.frame;
    return;
  }
  const frames = delta.whole.frames(named);
  if (frames.length > 0) yield frames;
}

function hasAnonymous({ whole, sets }: EndpointDelta): boolean {
  return whole === undefined ? sets.some(({ named }) => !named) : whole.frames(false).length > 0;
}

function deletedEndpoints(deltas: Iterable<EndpointDelta>): readonly LocalEndpoint[] {
  const ascending: LocalEndpoint[] = [];
  for (const { deletes } of deltas) for (const each of deletes.toReversed()) ascending.push(each);
  return ascending.reverse();
}

/** A state of a service as a node sees it. */
interface Side {
  readonly record: ServiceRecord | undefined;
  readonly node: ViewNode;
}

/** What differs for a node between two states of the endpoints of a service. */
interface EndpointDelta {
  /** New or changed, in order of the key; empty with `whole`. */
  readonly sets: readonly LocalEndpoint[];
  /** Removed, in reverse order. */
  readonly deletes: readonly LocalEndpoint[];
  /** All that is new, if there is nothing else and many nodes see it in the same way. */
  readonly whole?: SharedEndpoints;
  /**
   * The same for all nodes without an endpoint of the service, together with the difference in the service; absent:
   * computed for one node.
   */
  readonly sharedAs?: number;
}

/** Computes the differences between two states for nodes. Results that many nodes share are computed once. */
class LocalDeltas {
  /** By the newer endpoints, nearly always compared with the same older ones. */
  readonly #shared = new Map<SharedEndpoints, { from: SharedEndpoints; delta: EndpointDelta }>();
  readonly #hasher: Hasher;
  #ids = 0;

  constructor(hasher: Hasher) {
    this.#hasher = hasher;
  }

  /** Undefined when nothing differs for the node, neither in the service. */
  between(older: Side, newer: Side): EndpointDelta | undefined {
    const [from, to] = [this.#viewOf(older), this.#viewOf(newer)];
    if (from === to) return undefined;
    const shared = this.#sharedBetween(from.shared, to.shared);
    const isShared = from.own === undefined && to.own === undefined;
    const delta = isShared ? shared : ownDelta(from, to, shared);
    const newCount = delta.whole?.byKey.size ?? delta.sets.length;
    if (newCount + delta.deletes.length > 0) return delta;
    // Not only the same object: it may have gone and come back as it was.
    const [before, after] = [older, newer].map(({ record }) => serviceEntry(record));
    return isSameEntry(before, after) ? undefined : delta;
  }

  #viewOf({ record, node }: Side): View {
    return record?.views(this.#hasher)?.of(node) ?? NO_VIEW;
  }

  #sharedBetween(from: SharedEndpoints, to: SharedEndpoints): EndpointDelta {
    const known = this.#shared.get(to);
    if (known?.from === from) return known.delta;
    const [before, after] = [from.byKey, to.byKey];
    const keys = [...after.keys(), ...[...before.keys()].filter((key) => !after.has(key))];
    const found =
      before.size === 0
        ? { sets: [], deletes: [], whole: to }
        : differing(keys, before.get.bind(before), after.get.bind(after));
    // `NO_VIEW` belongs to no particular service, so changes to it are computed for each.
    if (to === NO_VIEW.shared) return found;
    const delta = { ...found, sharedAs: ++this.#ids };
    this.#shared.set(to, { from, delta });
    return delta;
  }
}

function serviceEntry(record: ServiceRecord | undefined): Entry | undefined {
  return record?.service && localServiceEntry(record.service);
}

function ownDelta(from: View, to: View, { sets, deletes, whole }: EndpointDelta): EndpointDelta {
  const keys = new Set(whole?.byKey.keys() ?? [...sets, ...deletes].map(({ key }) => key));
  for (const { own } of [from, to]) for (const key of own?.keys() ?? []) keys.add(key);
  return differing(
    keys,
    (key) => lookUp(from, key),
    (key) => lookUp(to, key),
  );
}

type LookUp = (key: string) => LocalEndpoint | undefined;

/** `keys`: each once. */
function differing(keys: Iterable<string>, from: LookUp, to: LookUp): EndpointDelta {
  const sets: LocalEndpoint[] = [];
  const deletes: LocalEndpoint[] = [];
  for (const key of keys) {
    const before = from(key);
    const after = to(key);
    if (before === after || (before && after?.equals(before) === true)) continue;
    if (after !== undefined) sets.push(after);
    else if (before !== undefined) deletes.push(before);
  }
  sets.sort(byKey);
  deletes.sort((a, b) => byKey(b, a));
  return { sets, deletes };
}

function lookUp({ shared, own }: View, key: string): LocalEndpoint | undefined {
  return own?.has(key) === true ? own.get(key) : shared.byKey.get(key);
}

function byKey(a: LocalEndpoint, b: LocalEndpoint): number {
  return compareKeys(a.key, b.key);
}
