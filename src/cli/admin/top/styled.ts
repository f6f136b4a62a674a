import { escapeControls } from '../../../util/terminal-text.ts';

/** How a piece of text looks. */
export type Style =
  'plain' | 'dim' | 'bold' | 'good' | 'warn' | 'bad' | 'violet' | 'blue' | 'head' | 'selected';

/** A piece of a line. */
export interface Piece {
  readonly text: string;
  readonly style: Style;
}

export type Line = readonly Piece[];

/** Terminal codes: its own sixteen colours, which fit its background. */
const CODES: Readonly<Record<Style, string>> = {
  plain: '',
  dim: '2',
  bold: '1',
  good: '32',
  warn: '33',
  bad: '1;31',
  violet: '35',
  blue: '36',
  head: '7',
  selected: '1;4',
};

/** Escapes control characters: names must not control the terminal. */
export function piece(text: string, style: Style = 'plain'): Piece {
  return { text: escapeControls(text), style };
}

export function plainLine(line: Line): string {
  return line
    .map(({ text }) => text)
    .join('')
    .trimEnd();
}

/** The line for a terminal, cut to its width. */
export function ansiLine(line: Line, width: number): string {
  return cut(line, width)
    .map(({ text, style }) =>
      CODES[style] === '' ? text : `\u001b[${CODES[style]}m${text}\u001b[0m`,
    )
    .join('');
}

/** No longer than `width` characters. */
export function cut(line: Line, width: number): Piece[] {
  const kept: Piece[] = [];
  let left = width;
  for (const { text, style } of line) {
    if (left <= 0) break;
    const part = text.length > left ? text.slice(0, left) : text;
    kept.push({ text: part, style });
    left -= part.length;
  }
  return kept;
}
