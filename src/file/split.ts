/** The text of one item of the list of services. */
export interface Chunk {
  /** From the item's dash to the next item, with whatever comments are between. */
  readonly text: string;
  /** Lines of the file before it. */
  readonly linesBefore: number;
}

/** A state file cut into its service items and the rest. */
export interface Split {
  readonly items: readonly Chunk[];
  /** The file without the items. */
  readonly rest: string;
  /** Offset of the key `services` in the rest. */
  readonly servicesAt: number;
  /** The line of the rest, counted from 1, after which the items were taken out. */
  readonly cutAfterLine: number;
  /** How many lines were taken out there. */
  readonly cutLines: number;
}

/** The key `services` with nothing but a comment behind it. */
const SERVICES = /^services:[ \t]*(?:#.*)?\r?$/m;

/**
 * Cuts a file in the usual block style, as kpng writes it, into one text for each service. It only
 * looks at indentation, so it is fast, and a file of ten thousand services need not become one
 * tree of YAML nodes in memory.
 *
 * Undefined when the text does not have that form, or might mean something else as a whole; such a
 * file must be parsed in one piece.
 */
export function splitServices(text: string): Split | undefined {
  const services = SERVICES.exec(text);
  if (services === null) return undefined;
  const prefixEnd = text.indexOf('\n', services.index) + 1;
  // A directive counts for the whole document.
  if (prefixEnd === 0 || /^%/m.test(text.slice(0, prefixEnd))) return undefined;
  const cut = cutItems(text, prefixEnd);
  if (cut === undefined) return undefined;
  const cutAfterLine = countLines(text, 0, prefixEnd);
  const items: Chunk[] = [];
  let line = cutAfterLine;
  for (const [index, start] of cut.starts.entries()) {
    if (index === 0) line += countLines(text, prefixEnd, start);
    const end = cut.starts[index + 1] ?? cut.end;
    items.push({ text: text.slice(start, end), linesBefore: line });
    line += countLines(text, start, end);
  }
  return {
    items,
    rest: text.slice(0, prefixEnd) + text.slice(cut.end),
    servicesAt: services.index,
    cutAfterLine,
    cutLines: line - cutAfterLine,
  };
}

/** Offsets where the items start, and where the list ends. */
function cutItems(text: string, from: number): { starts: number[]; end: number } | undefined {
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
    if (char !== '\r' && char !== '#' && (itemIndent === -1 || indent <= itemIndent)) {
      if (isDash(text, first, lineEnd) && (itemIndent === -1 || indent === itemIndent)) {
        itemIndent = indent;
        starts.push(lineStart);
      } else if (itemIndent !== -1 && indent === 0 && /[A-Za-z_"']/.test(char)) {
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

function countLines(text: string, from: number, to: number): number {
  let lines = 0;
  for (let at = text.indexOf('\n', from); at !== -1 && at < to; at = text.indexOf('\n', at + 1)) {
    lines += 1;
  }
  return lines;
}

const SPACE = 0x20;
