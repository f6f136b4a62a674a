/**
 * The patterns of kpng's `--with-...` flags: `*` any text, `?` one character, `[ab]`, `[a-z]`, `[!a]`,
 * `{x,y}` one of several, `\` takes the next character literally. Nothing separates parts: `*` crosses
 * `/` and `.`.
 */
export type Matcher = (key: string) => boolean;

/** One part of a pattern: any text, one character, or one of several patterns. */
type Part = '*' | ((char: string) => boolean) | Choice;

interface Choice {
  readonly alternatives: Part[][];
}

const EXACT = /^[^*?[\]{}\\]*$/;

/** Matching recurses once for each level of braces. */
const MAX_DEPTH = 16;

/** Matches when any of the patterns does; undefined without patterns. Throws an Error for a bad one. */
export function compileGlobs(patterns: readonly string[]): Matcher | undefined {
  if (patterns.length === 0) return undefined;
  const exact = new Set(patterns.filter((pattern) => EXACT.test(pattern)));
  const parsed = patterns.filter((pattern) => !EXACT.test(pattern)).map(parseGlob);
  return (key) => exact.has(key) || parsed.some((parts) => matchesAll(parts, Array.from(key)));
}

/** The entries whose keys match. Without a matcher: none. */
export function pick(
  entries: Readonly<Record<string, unknown>>,
  matches: Matcher | undefined,
): Record<string, string> {
  const picked: Record<string, string> = {};
  if (matches === undefined) return picked;
  for (const [key, value] of Object.entries(entries)) {
    if (typeof value === 'string' && matches(key)) picked[key] = value;
  }
  return picked;
}

function matchesAll(parts: readonly Part[], key: readonly string[]): boolean {
  return endsOf(parts, key, new Set([0])).has(key.length);
}

/**
 * The positions in `key` where `parts` can end when they begin at one of `starts`. A regular expression would
 * try combinations; this takes at most length of the pattern times length of the key.
 */
function endsOf(
  parts: readonly Part[],
  key: readonly string[],
  starts: ReadonlySet<number>,
): ReadonlySet<number> {
  let ends = starts;
  for (const part of parts) {
    if (ends.size === 0) break;
    const next = new Set<number>();
    if (part === '*') {
      let first = key.length;
      for (const at of ends) first = Math.min(first, at);
      for (let at = first; at <= key.length; at += 1) next.add(at);
    } else if (typeof part === 'function') {
      for (const at of ends) if (at < key.length && part(key[at] ?? '')) next.add(at + 1);
    } else {
      for (const alternative of part.alternatives) {
        for (const at of endsOf(alternative, key, ends)) next.add(at);
      }
    }
    ends = next;
  }
  return ends;
}

function parseGlob(pattern: string): Part[] {
  const chars = Array.from(pattern);
  const whole: Part[] = [];
  const open: { readonly choice: Choice; readonly around: Part[] }[] = [];
  let parts = whole;
  for (let i = 0; i < chars.length; i += 1) {
    const char = chars[i] ?? '';
    if (char === '*') parts.push('*');
    else if (char === '?') parts.push(() => true);
    else if (char === '[') {
      const end = chars.indexOf(']', i + 2);
      if (end === -1) throw new Error(`no ] for the [ in ${pattern}`);
      parts.push(parseCharacters(chars.slice(i + 1, end), pattern));
      i = end;
    } else if (char === '{') {
      if (open.length === MAX_DEPTH) {
        throw new Error(`braces are nested more than ${MAX_DEPTH} deep`);
      }
      const choice: Choice = { alternatives: [[]] };
      parts.push(choice);
      open.push({ choice, around: parts });
      parts = choice.alternatives[0] ?? [];
    } else if (char === '}') {
      const closed = open.pop();
      if (closed === undefined) throw new Error(`no { for the } in ${pattern}`);
      parts = closed.around;
    } else if (char === ',' && open.length > 0) {
      parts = [];
      open.at(-1)?.choice.alternatives.push(parts);
    } else {
      if (char === '\\') i += 1;
      const literal = chars[i];
      if (literal === undefined) throw new Error(`nothing after the \\ in ${pattern}`);
      parts.push((each) => each === literal);
    }
  }
  if (open.length > 0) throw new Error(`no } for the { in ${pattern}`);
  return whole;
}

/** The content of `[` and `]`: characters or one range; a leading `!` negates it. */
function parseCharacters(set: readonly string[], pattern: string): (char: string) => boolean {
  const isNegated = set[0] === '!';
  const members = isNegated ? set.slice(1) : set;
  if (members.length === 0) throw new Error(`nothing between [ and ] in ${pattern}`);
  const [low = '', dash, high = ''] = members;
  if (members.length !== 3 || dash !== '-') {
    return (char) => members.includes(char) !== isNegated;
  }
  const [from, to] = [codePoint(low), codePoint(high)];
  if (from > to) throw new Error(`${members.join('')} is not a range in ${pattern}`);
  return (char) => (codePoint(char) >= from && codePoint(char) <= to) !== isNegated;
}

function codePoint(char: string): number {
  return char.codePointAt(0) ?? 0;
}
