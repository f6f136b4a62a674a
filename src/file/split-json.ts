import type { Piece, Split } from './pieces.ts';

/**
 * Cuts the text of a JSON object into the items of the list under `key`. It only looks for brackets,
 * commas and quotes, so it is fast, and it does not find out whether the pieces are JSON.
 *
 * Undefined when the text does not look like a JSON object with one such list.
 */
export function splitJson(text: string, key: string): Split | undefined {
  let at = skipBlanks(text, 0);
  if (text[at] !== '{') return undefined;
  let list: { items: readonly Piece[]; keyAt: number; from: number; to: number } | undefined;
  do {
    const keyAt = skipBlanks(text, at + 1);
    if (text[keyAt] !== '"') return undefined;
    const keyEnd = endOfText(text, keyAt);
    const colon = skipBlanks(text, keyEnd);
    if (text[colon] !== ':') return undefined;
    const value = skipBlanks(text, colon + 1);
    if (text[value] === '[' && text.slice(keyAt, keyEnd) === `"${key}"`) {
      const found = cutItems(text, value + 1);
      if (found === undefined || list !== undefined) return undefined;
      list = { ...found, keyAt, from: value + 1 };
      at = skipBlanks(text, found.to + 1);
    } else {
      at = skipBlanks(text, skipValue(text, value));
    }
  } while (text[at] === ',');
  if (list === undefined || text[at] !== '}') return undefined;
  if (skipBlanks(text, at + 1) !== text.length) return undefined;
  return {
    form: 'json',
    items: list.items,
    rest: text.slice(0, list.from) + text.slice(list.to),
    keyAt: list.keyAt,
    cutAt: list.from,
    cutLength: list.to - list.from,
  };
}

/** The items of a list whose bracket is before `from`; `to` is the offset of its other bracket. */
function cutItems(text: string, from: number): { items: Piece[]; to: number } | undefined {
  const items: Piece[] = [];
  let at = skipBlanks(text, from);
  if (text[at] === ']') return { items, to: at };
  for (;;) {
    const end = skipValue(text, at);
    items.push({ text: text.slice(at, end), start: at });
    const next = skipBlanks(text, end);
    if (text[next] === ']') return { items, to: next };
    if (text[next] !== ',') return undefined;
    at = skipBlanks(text, next + 1);
  }
}

/** The offset behind a value. What is no value ends somewhere, at the end of the text at the latest. */
function skipValue(text: string, from: number): number {
  let depth = 0;
  let at = from;
  while (at < text.length) {
    const char = text.charCodeAt(at);
    if (char === QUOTE) {
      at = endOfText(text, at);
      if (depth === 0) return at;
      continue;
    }
    if (char === OPEN_BRACE || char === OPEN_BRACKET) {
      depth += 1;
    } else if (char === CLOSE_BRACE || char === CLOSE_BRACKET) {
      if (depth === 0) return at;
      depth -= 1;
      if (depth === 0) return at + 1;
    } else if (depth === 0 && (char === COMMA || isBlank(char))) {
      return at;
    }
    at += 1;
  }
  return at;
}

/** The offset behind a text in quotes. */
export function endOfText(text: string, openQuote: number): number {
  let at = openQuote;
  for (;;) {
    at = text.indexOf('"', at + 1);
    if (at === -1) return text.length;
    let backslashes = 0;
    while (text.charCodeAt(at - 1 - backslashes) === BACKSLASH) backslashes += 1;
    if (backslashes % 2 === 0) return at + 1;
  }
}

function skipBlanks(text: string, from: number): number {
  let at = from;
  while (isBlank(text.charCodeAt(at))) at += 1;
  return at;
}

function isBlank(char: number): boolean {
  return char === 0x20 || char === 0x0a || char === 0x0d || char === 0x09;
}

const QUOTE = 0x22;
const COMMA = 0x2c;
const OPEN_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
