/**
 * The patterns of kpng's `--with-...` flags: `*` any text, `?` one character, `[ab]`, `[a-z]`, `[!a]`,
 * `{x,y}` one of several, `\` takes the next character literally. Nothing separates parts: `*` crosses
 * `/` and `.`.
 */
import type { Json } from './json.ts';

/** Where a part of a pattern can end in a key when it begins at one of `starts`. */
type Part = (key: readonly string[], starts: ReadonlySet<number>) => ReadonlySet<number>;

const START: ReadonlySet<number> = new Set([0]);

const EXACT = /^[^*?[\]{}\\]*$/;

/** Matching recurses once for each level of braces. */
const MAX_DEPTH = 16;

/** Picks the texts of an object whose keys match any of the patterns. Throws an Error for a bad pattern. */
export function compileGlobs(patterns: readonly string[]) {
  const exact = new Set(patterns.filter((pattern) => EXACT.test(pattern)));
  const parsed = patterns.filter((pattern) => !EXACT.test(pattern)).map(parseGlob);
  const matches = (key: string): boolean => {
    const chars = Array.from(key);
    return parsed.some((part) => part(chars, START).has(chars.length));
  };
  return (entries: Json): Record<string, string> => {
    if (patterns.length === 0) return {};
    const texts = Object.entries(entries).filter(isText);
    return Object.fromEntries(texts.filter(([key]) => exact.has(key) || matches(key)));
  };
}

function isText(entry: [string, unknown]): entry is [string, string] {
  return typeof entry[1] === 'string';
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
