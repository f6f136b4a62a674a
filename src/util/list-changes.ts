/** The items that only one of two lists has. */
export interface ListChanges<T> {
  readonly removed: readonly T[];
  readonly added: readonly T[];
}

/** Compares lists whose unchanged items are the same objects. Cheap for long lists with few changes; ignores the order. */
export function listChanges<T>(before: readonly T[], after: readonly T[]): ListChanges<T> {
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
