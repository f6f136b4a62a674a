import type { EndpointState, ServiceRow, ServiceState } from '../../../admin/views.ts';
import type { HealthState } from '../../../observe/verdict.ts';
import { bytes, count } from '../layout.ts';
import { escapeControls } from '../../../util/terminal-text.ts';

export const STATE_STYLES: Readonly<Record<ServiceState | EndpointState | HealthState, Style>> = {
  ok: 'good',
  ready: 'good',
  degraded: 'warn',
  'no-endpoints': 'warn',
  failing: 'warn',
  down: 'bad',
  drained: 'violet',
  removed: 'dim',
  unused: 'dim',
};

export interface Column {
  readonly title: string;
  readonly width: number;
  /** Minimum number of terminal columns to show it. */
  readonly from?: number;
  /** Default: right. */
  readonly align?: 'left';
  /** The key that sorts by it. */
  readonly key?: string;
  readonly cell: (row: ServiceRow) => string;
  readonly style?: (row: ServiceRow) => Style;
}

const zero = (value: number): Style => (value === 0 ? 'dim' : 'plain');

function figure(
  title: string,
  width: number,
  key: string,
  valueOf: (row: ServiceRow) => number,
  format = count,
): Column {
  return {
    title,
    width,
    key,
    cell: (row) => format(valueOf(row)),
    style: (row) => zero(valueOf(row)),
  };
}

export const COLUMNS: readonly Column[] = [
  {
    title: 'STATE',
    width: 9,
    align: 'left',
    key: 's',
    cell: ({ state }) => (state === 'no-endpoints' ? 'no-endpts' : state),
    style: ({ state }) => STATE_STYLES[state],
  },
  {
    title: 'ADDRESS',
    width: 22,
    align: 'left',
    from: 140,
    cell: ({ addresses: [first = '-'] }) => first,
    style: () => 'dim',
  },
  {
    title: 'ENDPTS',
    width: 6,
    key: 'p',
    cell: ({ endpoints: { usable, total } }) =>
      usable === total ? String(total) : `${usable}/${total}`,
    style: ({ endpoints: { usable, total } }) => (usable < total ? 'warn' : zero(total)),
  },
  figure('ACTIVE', 6, 'c', ({ active }) => active),
  figure('CONN/S', 6, 'r', ({ rates }) => rates.connections),
  figure('IN/S', 7, 'i', ({ rates }) => rates.bytesIn, bytes),
  figure('OUT/S', 7, 'o', ({ rates }) => rates.bytesOut, bytes),
  {
    title: 'ERRORS',
    width: 6,
    key: 'e',
    cell: ({ totals }) => count(totals.errors),
    style: ({ totals, rates }) => (rates.errors > 0 ? 'bad' : zero(totals.errors)),
  },
  {
    title: '5 MINUTES',
    width: 15,
    align: 'left',
    from: 118,
    cell: ({ spark }) => bars(spark ?? []),
    style: () => 'blue',
  },
];

const BARS = '▁▂▃▄▅▆▇█';

/** A plot with half as many characters as numbers. */
export function bars(values: readonly number[]): string {
  const top = Math.max(...values, 1);
  let text = '';
  for (let index = 0; index + 1 < values.length; index += 2) {
    const value = ((values[index] ?? 0) + (values[index + 1] ?? 0)) / 2;
    const step = Math.ceil((value / top) * (BARS.length - 1));
    text += value === 0 ? ' ' : (BARS[step] ?? '');
  }
  return text;
}

/** Whole if it fits; otherwise its beginning and end, since names differ in both. */
export function elided(name: string, width: number): string {
  if (name.length <= width) return name;
  const begin = Math.ceil((width - 1) / 2);
  return `${name.slice(0, begin)}…${name.slice(name.length - (width - 1 - begin))}`;
}

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
