/** The candidate that a misspelled word most likely means, if one is close enough. */
export function closest(word: string, candidates: readonly string[]): string | undefined {
  const lower = word.toLowerCase();
  let best: string | undefined;
  let bestDistance = Math.min(3, Math.ceil(word.length / 2));
  for (const candidate of candidates) {
    // So a long word takes no time.
    if (Math.abs(candidate.length - word.length) >= bestDistance) continue;
    const distance = editDistance(lower, candidate.toLowerCase());
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

/** Insertions, deletions, replacements and swaps of neighbours, from `a` to `b` (optimal string alignment). */
function editDistance(a: string, b: string): number {
  let beforePrevious: readonly number[] = [];
  let previous: readonly number[] = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let row = 1; row <= a.length; row += 1) {
    const current = [row];
    for (let column = 1; column <= b.length; column += 1) {
      const replace = (previous[column - 1] ?? 0) + (a[row - 1] === b[column - 1] ? 0 : 1);
      const remove = (previous[column] ?? 0) + 1;
      const insert = (current[column - 1] ?? 0) + 1;
      const swapped = row > 1 && a[row - 1] === b[column - 2] && a[row - 2] === b[column - 1];
      const swap = swapped ? (beforePrevious[column - 2] ?? 0) + 1 : Infinity;
      current.push(Math.min(replace, remove, insert, swap));
    }
    beforePrevious = previous;
    previous = current;
  }
  return previous[b.length] ?? 0;
}

const LISTED = 10;

/** Names for a message, in quotes: the first few, and the number of others. */
export function nameList(names: readonly string[]): string {
  const shown = names.slice(0, LISTED).map((name) => JSON.stringify(name));
  const more = names.length - shown.length;
  return `${shown.join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
}

/**
 * A hint for an unknown service name that lacks its namespace: `; did you mean "shop/cart"?`, or the format of names
 * when none matches. Otherwise empty. `names` are those of service ports, `namespace/name[:port]`.
 */
export function nameHint(given: string, names: Iterable<string>): string {
  if (given.includes('/')) return '';
  for (const name of names) {
    const [namespace = '', rest = ''] = name.split('/');
    if (rest === given || rest.startsWith(`${given}:`)) {
      return `; did you mean ${JSON.stringify(`${namespace}/${given}`)}?`;
    }
  }
  return '; services are named namespace/name';
}
