import type { Service } from '../api/generated/localv1/api.ts';
import type { Hasher } from '../api/hash.ts';
import { servicePath } from '../api/paths.ts';
import type { ViewNode } from './selection.ts';
import type { ServiceRecord } from './service-record.ts';
import { endpointsIn, NO_VIEW, type SharedEndpoints, type View } from './service-views.ts';
import { isSameEntry, localServiceEntry, type LocalEndpoint } from './stored.ts';
import { compareKeys } from './table.ts';

/** What differs between two states of a service, its endpoints aside. */
export interface ServiceChange {
  /** The service, if it is new or has changed. */
  readonly service: Service | undefined;
  readonly removed: Service | undefined;
}

/** What differs for a node between two states of a service. */
export interface ServiceDelta extends ServiceChange, EndpointDelta {
  /** `namespace/name` */
  readonly key: string;
  /** The same for all nodes without an endpoint of the service; undefined: computed for one node. */
  readonly sharedAs: number | undefined;
}

/** A state of a service as a node sees it. */
export interface Side {
  readonly record: ServiceRecord | undefined;
  readonly node: ViewNode;
}

/** Computes the differences for nodes. Results that many nodes share are computed once, until `clear` is called. */
export class LocalDeltas {
  /** Keys of changed endpoints, by the newer of the two sets. */
  readonly #keys = new Map<SharedEndpoints, { from: SharedEndpoints; keys: readonly string[] }>();
  /** By the newer view, nearly always compared with the same older one. `delta` undefined: nothing differs. */
  readonly #shared = new Map<View, { from: View; delta: ServiceDelta | undefined }>();
  readonly #hasher: Hasher;
  #ids = 0;

  constructor(hasher: Hasher) {
    this.#hasher = hasher;
  }

  /** Clears the cached results; call it when the state has changed. */
  clear(): void {
    this.#keys.clear();
    this.#shared.clear();
  }

  /** Undefined when nothing differs for the node. */
  between(older: Side, newer: Side): ServiceDelta | undefined {
    const service = newer.record?.service ?? older.record?.service;
    if (service === undefined) return undefined;
    const from = this.#viewOf(older);
    const to = this.#viewOf(newer);
    if (from === to) return undefined;
    // `NO_VIEW` belongs to no particular service, so changes to it are computed for each.
    const isShared = from.own === undefined && to.own === undefined && to !== NO_VIEW;
    const known = isShared ? this.#shared.get(to) : undefined;
    if (known?.from === from) return known.delta;
    const delta: ServiceDelta = {
      key: servicePath(service.namespace, service.name),
      ...(serviceChange(older, newer) ?? UNCHANGED),
      ...this.#differences(from, to),
      sharedAs: isShared ? ++this.#ids : undefined,
    };
    const result = isEmpty(delta) ? undefined : delta;
    if (isShared) this.#shared.set(to, { from, delta: result });
    return result;
  }

  #viewOf({ record, node }: Side): View {
    return record?.views(this.#hasher)?.of(node) ?? NO_VIEW;
  }

  #differences(older: View, newer: View): EndpointDelta {
    if (older.shared.byKey.size === 0 && older.own === undefined) return wholeOf(newer);
    const keys = new Set(this.#changedKeys(older.shared, newer.shared));
    for (const { own } of [older, newer]) for (const key of own?.keys() ?? []) keys.add(key);
    const sets: LocalEndpoint[] = [];
    const deletes: LocalEndpoint[] = [];
    for (const key of keys) {
      const before = lookUp(older, key);
      const after = lookUp(newer, key);
      if (isSame(before, after)) continue;
      if (after !== undefined) sets.push(after);
      else if (before !== undefined) deletes.push(before);
    }
    sets.sort(byKey);
    deletes.sort((a, b) => byKey(b, a));
    return { sets, deletes, whole: undefined };
  }

  /** In no order. */
  #changedKeys(older: SharedEndpoints, newer: SharedEndpoints): readonly string[] {
    if (older === newer) return [];
    const known = this.#keys.get(newer);
    if (known?.from === older) return known.keys;
    const keys: string[] = [];
    for (const [key, endpoint] of newer.byKey) {
      if (!isSame(older.byKey.get(key), endpoint)) keys.push(key);
    }
    for (const key of older.byKey.keys()) if (!newer.byKey.has(key)) keys.push(key);
    this.#keys.set(newer, { from: older, keys });
    return keys;
  }
}

const UNCHANGED: ServiceChange = { service: undefined, removed: undefined };

/** The difference in the service itself; undefined: none. */
export function serviceChange(older: Side, newer: Side): ServiceChange | undefined {
  const before = older.record?.service;
  const after = newer.record?.service;
  // Not only the same object: it may have gone and come back as it was.
  if (before === after) return undefined;
  if (isSameEntry(before && localServiceEntry(before), after && localServiceEntry(after))) {
    return undefined;
  }
  return { service: after, removed: after === undefined ? before : undefined };
}

function isEmpty(delta: ServiceDelta): boolean {
  if (delta.service !== undefined || delta.removed !== undefined) return false;
  if (delta.deletes.length > 0) return false;
  return (delta.whole?.byKey.size ?? delta.sets.length) === 0;
}

/** What differs between two views of the endpoints of a service. */
interface EndpointDelta {
  /** New or changed, in order of the key; empty with `whole`. */
  readonly sets: readonly LocalEndpoint[];
  /** Removed, in reverse order. */
  readonly deletes: readonly LocalEndpoint[];
  /** All that is new, if there is nothing else and many nodes see it in the same way. */
  readonly whole: SharedEndpoints | undefined;
}

function wholeOf(view: View): EndpointDelta {
  if (view.own === undefined) return { sets: [], deletes: [], whole: view.shared };
  const sets = [...endpointsIn(view).values()].sort(byKey);
  return { sets, deletes: [], whole: undefined };
}

function lookUp({ shared, own }: View, key: string): LocalEndpoint | undefined {
  return own?.has(key) === true ? own.get(key) : shared.byKey.get(key);
}

function isSame(a: LocalEndpoint | undefined, b: LocalEndpoint | undefined): boolean {
  return a === b || (a !== undefined && b !== undefined && a.equals(b));
}

function byKey(a: LocalEndpoint, b: LocalEndpoint): number {
  return compareKeys(a.key, b.key);
}
