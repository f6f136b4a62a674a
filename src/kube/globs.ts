/**
 * The patterns of kpng's `--with-...` flags: `*` any text, `?` one character, `[ab]`, `[a-z]`, `[!a]`,
 * `{x,y}` one of several, `\` takes the next character literally. Nothing separates parts: `*` crosses
 * `/` and `.`.
 */
export type Matcher = (key: string) => boolean;

/** Where a part of a pattern can end in a key when it begins at one of `starts`. */
type Part = (key: readonly string[], starts: ReadonlySet<number>) => ReadonlySet<number>;

const START: ReadonlySet<number> = new Set([0]);

const EXACT = /^[^*?[\]{}\\]*$/;

/** Matching recurses once for each level of braces. */
const MAX_DEPTH = 16;

/** Matches when any of the patterns does; undefined without patterns. Throws an Error for a bad one. */
export function compileGlobs(patterns: readonly string[]): Matcher | undefined {
  if (patterns.length === 0) return undefined;
  const exact = new Set(patterns.filter((pattern) => EXACT.test(pattern)));
  const parsed = patterns.filter((pattern) => !EXACT.test(pattern)).map(parseGlob);
  return (key) => {
    const chars = Array.from(key);
    return exact.has(key) || parsed.some((part) => part(chars, START).has(chars.length));
  };
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

// A regular expression would try combinations; these take at most length of the pattern times length of the key.

const anyText: Part = (key, starts) => {
  let first = Infinity;
  for (const at of starts) first = Math.min(first, at);
  const ends = new Set<number>();
  for (let at = first; at <= key.length; at += 1) ends.add(at);
  return ends;
};

function character(matches: (char: string) => boolean): Part {
  return (key, starts) => {
    const ends = new Set<number>();
    for (const at of starts) if (at < key.length && matches(key[at] ?? '')) ends.add(at + 1);
    return ends;
  };
}

function sequence(parts: readonly Part[]): Part {
  return (key, starts) => parts.reduce((ends, part) => part(key, ends), starts);
}

function choice(alternatives: readonly Part[]): Part {
  return (key, starts) => new Set(alternatives.flatMap((each) => [...each(key, starts)]));
}

/** A character taken literally, the content of brackets, or any other character. */
const TOKEN = /\\([^])|\[([^][^\]]*)\]|[^]/gu;

function parseGlob(pattern: string): Part {
  /** The alternatives so far within each open brace; the first is the whole pattern. */
  const open: Part[][][] = [[[]]];
  const add = (part: Part): unknown => open.at(-1)?.at(-1)?.push(part);
  for (const [token, escaped, set] of pattern.matchAll(TOKEN)) {
    if (set !== undefined) add(character(parseCharacters(set, pattern)));
    else if (token === '*') add(anyText);
    else if (token === '?') add(character(() => true));
    else if (token === '[') throw new Error(`no ] for the [ in ${pattern}`);
    else if (token === '\\') throw new Error(`nothing after the \\ in ${pattern}`);
    else if (token === '{') {
      if (open.length > MAX_DEPTH) throw new Error(`braces are nested more than ${MAX_DEPTH} deep`);
      open.push([[]]);
    } else if (token === '}') {
      if (open.length === 1) throw new Error(`no { for the } in ${pattern}`);
      add(choice((open.pop() ?? []).map(sequence)));
    } else if (token === ',' && open.length > 1) open.at(-1)?.push([]);
    else add(character((char) => char === (escaped ?? token)));
  }
  if (open.length > 1) throw new Error(`no } for the { in ${pattern}`);
  return sequence(open[0]?.[0] ?? []);
}

/** The content of `[` and `]`: characters or one range; a leading `!` negates it. */
function parseCharacters(set: string, pattern: string): (char: string) => boolean {
  const [, not, members = '', low, high = ''] = /^(!?)(([^])-([^])|[^]*)$/u.exec(set) ?? [];
  if (members === '') throw new Error(`nothing between [ and ] in ${pattern}`);
  const isNegated = not === '!';
  if (low === undefined) return (char) => members.includes(char) !== isNegated;
  if (low > high) throw new Error(`${members} is not a range in ${pattern}`);
  return (char) => (char >= low && char <= high) !== isNegated;
}
