/** Whether two lists are the same, item by item in the same order. */
export function sameList<T>(
  a: readonly T[],
  b: readonly T[],
  same: (one: T, other: T) => boolean,
): boolean {
  if (a.length !== b.length) return false;
  for (const [index, one] of a.entries()) if (!same(one, b[index] as T)) return false;
  return true;
}
