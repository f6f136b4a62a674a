import type { SharedEndpoints, View } from './service-views.ts';
import type { LocalEndpoint } from './stored.ts';
import { compareKeys } from './table.ts';

/** What differs between two views of the endpoints of a service. */
export interface EndpointDelta {
  /** New or changed, in order of the key. */
  readonly sets: readonly LocalEndpoint[];
  /** Gone, in the opposite order. */
  readonly deletes: readonly LocalEndpoint[];
  /** What `sets` has, if that is all there is and many nodes see it in the same way. */
  readonly whole: SharedEndpoints | undefined;
}

/** The keys whose endpoints differ, in no order. */
export function changedKeys(older: SharedEndpoints, newer: SharedEndpoints): readonly string[] {
  if (older === newer) return [];
  const few = newer.keysSince(older);
  if (few !== undefined) return [...few];
  const keys: string[] = [];
  for (const [key, endpoint] of newer.byKey) {
    if (!isSame(older.byKey.get(key), endpoint)) keys.push(key);
  }
  for (const key of older.byKey.keys()) if (!newer.byKey.has(key)) keys.push(key);
  return keys;
}

/** `keysOf` is `changedKeys`, or remembers what that returned. */
export function diffViews(
  older: View,
  newer: View,
  keysOf: (older: SharedEndpoints, newer: SharedEndpoints) => readonly string[],
): EndpointDelta {
  if (older.shared.byKey.size === 0 && older.own === undefined) return wholeOf(newer);
  const keys = new Set(keysOf(older.shared, newer.shared));
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

/** Every endpoint of a view. */
function wholeOf({ shared, own }: View): EndpointDelta {
  if (own === undefined) {
    return {
      get sets() {
        return shared.sorted();
      },
      deletes: [],
      whole: shared,
    };
  }
  const sets = [...own.values()].filter((endpoint) => endpoint !== undefined);
  for (const [key, endpoint] of shared.byKey) if (!own.has(key)) sets.push(endpoint);
  return { sets: sets.sort(byKey), deletes: [], whole: undefined };
}

function lookUp({ shared, own }: View, key: string): LocalEndpoint | undefined {
  return own?.has(key) === true ? own.get(key) : shared.byKey.get(key);
}

function isSame(a: LocalEndpoint | undefined, b: LocalEndpoint | undefined): boolean {
  if (a === b) return true;
  if (a === undefined || b === undefined) return false;
  return a.equals(b);
}

function byKey(a: LocalEndpoint, b: LocalEndpoint): number {
  return compareKeys(a.key, b.key);
}
