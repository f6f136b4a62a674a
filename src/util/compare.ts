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

/**
 * The items that only one of two lists has. Unchanged items must be the same objects. Cheap for long lists with few
 * changes; ignores the order.
 */
export function listChanges<T>(before: readonly T[], after: readonly T[]) {
  const shorter = Math.min(before.length, after.length);
  let start = 0;
  while (start < shorter && before[start] === after[start]) start += 1;
  let end = 0;
  while (end < shorter - start && before.at(-1 - end) === after.at(-1 - end)) end += 1;
  const old = before.slice(start, before.length - end);
  const updated = after.slice(start, after.length - end);
  if (old.length === 0 || updated.length === 0) return { removed: old, added: updated };
  const [known, kept] = [new Set(old), new Set(updated)];
  return {
    removed: old.filter((each) => !kept.has(each)),
    added: updated.filter((each) => !known.has(each)),
  };
}
