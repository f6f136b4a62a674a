import type { Piece, Split } from './pieces.ts';

/**
 * Cuts a text in the usual block style, as kpng writes it, into the items of the list under `key`. It
 * only looks at indentation, so it is fast.
 *
 * `column` is the column of the key, counted from 0; `lead` is what may be before it instead of blanks,
 * such as the dash of an item whose first key it is.
 *
 * Undefined when the text does not have that form, or might mean something else as a whole. The
 * caller has to parse the rest, and to make sure that the key really is one.
 */
export function splitBlock(text: string, key: string, column = 0, lead = ''): Split | undefined {
  const before = lead === '' ? ' '.repeat(column) : `(?: {${column}}|${lead})`;
  // Nothing but a comment may be behind the key.
  const found = new RegExp(`^${before}${key}:[ \\t]*(?:#.*)?\\r?$`, 'm').exec(text);
  if (found === null) return undefined;
  const listAt = text.indexOf('\n', found.index) + 1;
  // A directive counts for the whole document.
  if (listAt === 0 || /^%/m.test(text.slice(0, listAt))) return undefined;
  const cut = cutItems(text, listAt, column);
  if (cut === undefined) return undefined;
  const items = cut.starts.map((start, index): Piece => {
    return { start, text: text.slice(start, cut.starts[index + 1] ?? cut.end) };
  });
  return {
    form: 'block',
    items,
    rest: text.slice(0, listAt) + text.slice(cut.end),
    keyAt: found.index + column,
    cutAt: listAt,
    cutLength: cut.end - listAt,
  };
}

/** Offsets where the items start, and where the list ends. */
function cutItems(
  text: string,
  from: number,
  column: number,
): { starts: number[]; end: number } | undefined {
  const starts: number[] = [];
  let itemIndent = -1;
  let lineStart = from;
  while (lineStart < text.length) {
    const newline = text.indexOf('\n', lineStart);
    const lineEnd = newline === -1 ? text.length : newline;
    let first = lineStart;
    while (first < lineEnd && text.charCodeAt(first) === SPACE) first += 1;
    const indent = first - lineStart;
    const char = first < lineEnd ? text.charAt(first) : '\r';
    if (char === '\t') return undefined;
    // A CR is part of an end of line before a LF only.
    if (first < lineEnd && char === '\r' && first + 1 !== newline) return undefined;
    if (char !== '\r' && char !== '#' && (itemIndent === -1 || indent <= itemIndent)) {
      if (isDash(text, first, lineEnd) && (itemIndent === -1 || indent === itemIndent)) {
        if (indent < column) return undefined;
        itemIndent = indent;
        starts.push(lineStart);
      } else if (itemIndent !== -1 && indent === column && /[A-Za-z_"']/.test(char)) {
        return { starts, end: lineStart };
      } else {
        return undefined;
      }
    }
    lineStart = lineEnd + 1;
  }
  return itemIndent === -1 ? undefined : { starts, end: text.length };
}

/** A dash that starts an item of a list. */
function isDash(text: string, at: number, lineEnd: number): boolean {
  if (text[at] !== '-') return false;
  return at + 1 === lineEnd || text[at + 1] === ' ' || text[at + 1] === '\r';
}

const SPACE = 0x20;
