/**
 * The patterns of kpng's `--with-...` flags: `*` any text, `?` one character, `[ab]`, `[a-z]`, `[!a]`,
 * `{x,y}` one of several, `\` takes the next character as it is. Nothing separates parts: `*` crosses
 * `/` and `.`.
 */
export type Matcher = (key: string) => boolean;

const EXACT = /^[^*?[\]{}\\]*$/;

/** Matches when any of the patterns does; undefined without patterns. Throws an Error for a bad one. */
export function compileGlobs(patterns: readonly string[]): Matcher | undefined {
  if (patterns.length === 0) return undefined;
  const exact = new Set(patterns.filter((pattern) => EXACT.test(pattern)));
  const expressions = patterns
    .filter((pattern) => !EXACT.test(pattern))
    .map((pattern) => new RegExp(`^(?:${translate(pattern)})$`, 'su'));
  return (key) => exact.has(key) || expressions.some((expression) => expression.test(key));
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

function translate(pattern: string): string {
  let expression = '';
  let depth = 0;
  for (let i = 0; i < pattern.length; i += 1) {
    const char = pattern[i] ?? '';
    if (char === '*') {
      // Two of them are no more than one.
      if (!expression.endsWith('.*')) expression += '.*';
    } else if (char === '?') expression += '.';
    else if (char === '[') {
      const end = pattern.indexOf(']', i + 2);
      if (end === -1) throw new Error(`no ] for the [ in ${pattern}`);
      expression += characters(pattern.slice(i + 1, end), pattern);
      i = end;
    } else if (char === '{') {
      depth += 1;
      expression += '(?:';
    } else if (char === '}') {
      if (depth === 0) throw new Error(`no { for the } in ${pattern}`);
      depth -= 1;
      expression += ')';
    } else if (char === ',' && depth > 0) expression += '|';
    else if (char === '\\') {
      i += 1;
      if (i === pattern.length) throw new Error(`nothing after the \\ in ${pattern}`);
      expression += literal(pattern[i] ?? '');
    } else expression += literal(char);
  }
  if (depth > 0) throw new Error(`no } for the { in ${pattern}`);
  return expression;
}

function characters(set: string, pattern: string): string {
  const not = set.startsWith('!');
  const members = not ? set.slice(1) : set;
  if (members === '') throw new Error(`nothing between [ and ] in ${pattern}`);
  const range = /^(.)-(.)$/su.exec(members);
  const [, low = '', high = ''] = range ?? [];
  if (low > high) throw new Error(`${members} is no range in ${pattern}`);
  const inside =
    range === null
      ? members.replaceAll(/[\^\\\]\-[]/g, String.raw`\$&`)
      : `${inClass(low)}-${inClass(high)}`;
  return `[${not ? '^' : ''}${inside}]`;
}

function literal(char: string): string {
  return /[\^$\\.*+?()[\]{}|/]/.test(char) ? `\\${char}` : char;
}

function inClass(char: string): string {
  return /[\^\\\]\-[]/.test(char) ? `\\${char}` : char;
}
