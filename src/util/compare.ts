/**
 * Deep equality of plain data: primitives, arrays, and objects that are neither Map nor Set. Several times as fast as
 * `isDeepStrictEqual`.
 */
export function isEqual(a: unknown, b: unknown): boolean {
  if (Object.is(a, b)) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return false;
  if (Array.isArray(a) || Array.isArray(b)) {
    if (!Array.isArray(a) || !Array.isArray(b) || a.length !== b.length) return false;
    for (let index = 0; index < a.length; index += 1) {
      if (!isEqual(a[index], b[index])) return false;
    }
    return true;
  }
  const left = a as Record<string, unknown>;
  const right = b as Record<string, unknown>;
  let more = 0;
  for (const key in left) {
    if (!Object.hasOwn(right, key) || !isEqual(left[key], right[key])) return false;
    more += 1;
  }
  for (const _ in right) more -= 1;
  return more === 0;
}

/** Sets an entry, or deletes it with undefined. */
export function put<T>(entries: Map<string, T>, key: string, value: T | undefined): void {
  if (value === undefined) entries.delete(key);
  else entries.set(key, value);
}
