/**
 * Deep equality of plain data: primitives, arrays, and objects that are neither Map nor Set. Several times as fast as
 * `isDeepStrictEqual`.
 */
export function isEqual(a: unknown, b: unknown): boolean {
  if (Object.is(a, b)) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return false;
  if (Array.isArray(a) || Array.isArray(b)) {
    if (!Array.isArray(a) || !Array.isArray(b) || a.length !== b.length) return false;
    return a.every((each, index) => isEqual(each, b[index]));
  }
  const [left, right] = [a as Record<string, unknown>, b as Record<string, unknown>];
  let more = 0;
  for (const key in left) {
    if (!Object.hasOwn(right, key) || !isEqual(left[key], right[key])) return false;
    more += 1;
  }
  for (const _ in right) more -= 1;
  return more === 0;
}
