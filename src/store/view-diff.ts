import { isDeepStrictEqual } from 'node:util';
import type { Endpoints, View } from './service-views.ts';
import type { LocalEndpoint } from './stored.ts';
import { compareKeys } from './table.ts';

/** What differs between two views of the endpoints of a service. */
export interface EndpointDelta {
  /** New or changed, in order of the key. */
  readonly sets: readonly LocalEndpoint[];
  /** Gone, in the opposite order. */
  readonly deletes: readonly LocalEndpoint[];
}

/** The keys whose endpoints differ, in no order. */
export function changedKeys(older: Endpoints, newer: Endpoints): readonly string[] {
  if (older === newer) return [];
  const keys: string[] = [];
  for (const [key, endpoint] of newer) {
    if (!isSame(older.get(key), endpoint)) keys.push(key);
  }
  for (const key of older.keys()) if (!newer.has(key)) keys.push(key);
  return keys;
}

/** `keysOf` is `changedKeys`, or remembers what that returned. */
export function diffViews(
  older: View,
  newer: View,
  keysOf: (older: Endpoints, newer: Endpoints) => readonly string[],
): EndpointDelta {
  if (older.shared.size === 0 && older.own === undefined) {
    return { sets: endpointsOf(newer), deletes: [] };
  }
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
  return { sets, deletes };
}

/** Every endpoint of a view, in order of the key. */
function endpointsOf({ shared, own }: View): readonly LocalEndpoint[] {
  if (own === undefined) return [...shared.values()];
  const endpoints = [...own.values()].filter((endpoint) => endpoint !== undefined);
  for (const [key, endpoint] of shared) if (!own.has(key)) endpoints.push(endpoint);
  return endpoints.sort(byKey);
}

function lookUp({ shared, own }: View, key: string): LocalEndpoint | undefined {
  return own?.has(key) === true ? own.get(key) : shared.get(key);
}

function isSame(a: LocalEndpoint | undefined, b: LocalEndpoint | undefined): boolean {
  if (a === b) return true;
  if (a === undefined || b === undefined) return false;
  return isDeepStrictEqual(a.endpoint, b.endpoint);
}

function byKey(a: LocalEndpoint, b: LocalEndpoint): number {
  return compareKeys(a.key, b.key);
}
