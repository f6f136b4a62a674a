import type { YAMLError } from 'yaml';

/** What the YAML parser objects to, in words for people who do not know its terms. */
export function yamlMessage(error: YAMLError, text: string): string {
  const { code, message } = error;
  if (code === 'DUPLICATE_KEY') return `duplicate key '${keyAt(text, error.pos[0])}'`;
  for (const [pattern, words] of WORDS) {
    if (pattern.test(`${code} ${message}`)) return words;
  }
  return lowerFirst(message);
}

/**
 * The first pattern that fits the parser's code and message counts. The parser tells where it gave up,
 * which is behind the cause: hence "before this".
 */
const WORDS: readonly (readonly [RegExp, string])[] = [
  [/^MULTIPLE_DOCS /, 'a second document begins here; a state file has one'],
  [/^RESOURCE_EXHAUSTION /, 'nested too deeply'],
  [/closing "quote/, 'a text in double quotes is not closed before this'],
  [/closing 'quote/, 'a text in single quotes is not closed before this'],
  [/end with a \]$/, "a list that begins with '[' is not closed with ']' before this"],
  [/end with a \}$/, "a map that begins with '{' is not closed with '}' before this"],
  [/^TAB_AS_INDENT /, 'a tab where only spaces may be'],
  [/^BAD_INDENT .*mapping items/, 'wrong indentation: the keys of a map start in one column'],
  [/^BAD_INDENT .*sequence items/, 'wrong indentation: the items of a list start in one column'],
  [
    /Sequence item without - /,
    "this belongs to no item of the list: a '-' is missing, or the indentation is wrong",
  ],
  [
    /^BLOCK_AS_IMPLICIT_KEY .*compact mappings/,
    "a ': ' too many: quote a text that has one, or the next line is indented too far",
  ],
  [
    /^(?:MULTILINE_IMPLICIT_KEY|MISSING_CHAR Implicit map keys) /,
    "this is neither a key with ': ' nor part of the line before; is the indentation right?",
  ],
];

function keyAt(text: string, offset: number): string {
  const end = text.indexOf(':', offset);
  return text.slice(offset, end === -1 ? offset + 40 : Math.min(end, offset + 40)).trim();
}

function lowerFirst(message: string): string {
  return /^[A-Z][a-z]/.test(message) ? message.charAt(0).toLowerCase() + message.slice(1) : message;
}
