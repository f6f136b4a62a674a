/** The candidate that a misspelled word most likely means, if one is close enough. */
export function closest(word: string, candidates: readonly string[]): string | undefined {
  const lower = word.toLowerCase();
  const mostEdits = Math.min(2, Math.ceil(word.length / 2) - 1);
  for (let edits = 0; edits <= mostEdits; edits += 1) {
    const found = candidates.find((each) => isWithin(lower, each.toLowerCase(), edits));
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Whether so many insertions, deletions, replacements and swaps of neighbours make one text of the other. */
function isWithin(a: string, b: string, edits: number): boolean {
  let same = 0;
  while (same < a.length && a[same] === b[same]) same += 1;
  if (same === a.length && same === b.length) return true;
  if (edits === 0) return false;
  const [left, right] = [a.slice(same), b.slice(same)];
  const isSwap = left[0] === right[1] && left[1] === right[0];
  return (
    isWithin(left.slice(1), right.slice(1), edits - 1) ||
    isWithin(left.slice(1), right, edits - 1) ||
    isWithin(left, right.slice(1), edits - 1) ||
    (isSwap && isWithin(left.slice(2), right.slice(2), edits - 1))
  );
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
