/** A text in block style, cut into the items of its list `services`. */
export interface Split {
  readonly items: readonly { readonly text: string; readonly start: number }[];
  /** The text without the items. */
  readonly rest: string;
  /** Offset of the key `services`, in the text as in the rest. */
  readonly keyAt: number;
  /** Offset in the rest where the items were, and how long they are together. */
  readonly cutAt: number;
  readonly cutLength: number;
}

/**
 * Cuts a text by its indentation. Undefined when it is not in block style, or might mean something else as
 * a whole. The caller has to make sure that the key is one, by parsing the rest.
 */
export function splitServices(text: string): Split | undefined {
  const key = /^services:[ \t]*(?:#.*)?\r?\n/m.exec(text);
  // Directives hold for all items, and to YAML a lone CR ends a line.
  if (key === null || /^%|\r(?!\n)/m.test(text)) return undefined;
  const cutAt = key.index + key[0].length;
  const firstLine = /^( *)-(?=[ \r\n])/gm;
  firstLine.lastIndex = cutAt;
  const indent = firstLine.exec(text)?.[1]?.length;
  if (indent === undefined) return undefined;
  // Everything that is indented further belongs to the item above it.
  const outline = new RegExp(`^ {0,${indent}}[^ \\r\\n#]`, 'gm');
  outline.lastIndex = cutAt;
  const starts: number[] = [];
  let end = text.length;
  for (let line = outline.exec(text); line !== null; line = outline.exec(text)) {
    const [start] = line;
    const column = start.length - 1;
    const isItem = start.endsWith('-') && /[ \r\n]|^$/.test(text.charAt(outline.lastIndex));
    if (isItem && column === indent) {
      starts.push(line.index);
    } else if (!isItem && starts.length > 0 && column === 0 && /[A-Za-z_"']/.test(start)) {
      end = line.index;
      break;
    } else {
      return undefined;
    }
  }
  return {
    items: starts.map((start, index) => ({
      text: text.slice(start, starts[index + 1] ?? end),
      start,
    })),
    rest: text.slice(0, cutAt) + text.slice(end),
    keyAt: key.index,
    cutAt,
    cutLength: end - cutAt,
  };
}
