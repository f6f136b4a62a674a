import type { Writable } from 'node:stream';
import type { ScalarStyleRule } from 'js-yaml';
import { escapeControls, escapeLines } from '../../util/terminal-text.ts';

export const OUTPUT_FORMS = ['table', 'json', 'yaml'] as const;
export type OutputForm = (typeof OUTPUT_FORMS)[number];

export interface Column<Row> {
  readonly title: string;
  /** Numbers are right-aligned. */
  readonly align?: 'left' | 'right';
  /** Absent: as wide as needed. */
  readonly width?: number;
  readonly cell: (row: Row) => string;
  /** Styles the text of a cell for a terminal. Absent: it stays plain. */
  readonly style?: (text: string, row: Row) => string;
}

/** Lines of a table with a header. */
export function table<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  gap = '  ',
): string[] {
  const texts = columns.map(({ title, align, width, cell, style = (text) => text }) => {
    const cells = rows.map((row) => escapeControls(cell(row)).slice(0, width));
    const most = width ?? cells.reduce((most, { length }) => Math.max(most, length), title.length);
    return [title, ...cells].map((text, index) => {
      const row = rows[index - 1];
      const shown = row === undefined ? text : style(text, row);
      const space = ''.padEnd(most - text.length);
      return align === 'right' ? space + shown : shown + space;
    });
  });
  const line = (index: number): string => texts.map(({ [index]: text }) => text).join(gap);
  return [-1, ...rows.keys()].map((index) => line(index + 1).trimEnd());
}

/** Two columns: names and values. Those without a value are left out. */
export function pairs(all: readonly (readonly [string, string])[]): string[] {
  const list = all.filter(([, text]) => text !== '');
  const width = Math.max(...list.map(([name]) => name.length));
  return list.map(([name, text]) => `${name.padEnd(width)}  ${escapeControls(text)}`.trimEnd());
}

/** `1 service`, `2 services`. */
export function counted(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}

const COMPACT = new Intl.NumberFormat('en', {
  notation: 'compact',
  maximumSignificantDigits: 3,
  useGrouping: false,
});

/** Three digits and a unit: `0`, `950`, `1.25k`, `31.4M`. */
export function count(value: number): string {
  const rounded = value < 10 ? Math.round(value * 10) / 10 : value;
  return COMPACT.format(rounded).replace('K', 'k').replace('B', 'G');
}

/** Bytes in powers of 1000, as network rates are: `0 B`, `1.5 kB`, `117 MB`. */
export function bytes(value: number): string {
  if (value >= 999.5e12) return `${count(value / 1e15)} PB`;
  return `${count(value).replace(/[kMGT]?$/, ' $&')}B`;
}

/** `12s`, `3m05s`, `4h07m`, `12d03h`. */
export function age(seconds: number): string {
  const whole = Math.floor(seconds);
  const two = (value: number): string => String(value).padStart(2, '0');
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)}h${two(Math.floor(whole / 60) % 60)}m`;
  return `${Math.floor(whole / 86_400)}d${two(Math.floor(whole / 3600) % 24)}h`;
}

/** A bound of the histogram of connect times: `1 ms`, `2.5 s`; null: beyond the last one. */
export function atMost(seconds: number | null, total: number): string {
  if (total === 0) return '-';
  if (seconds === null) return '> 2.5 s';
  return seconds < 1 ? `≤ ${seconds * 1000} ms` : `≤ ${seconds} s`;
}

/** Prints a response in the requested format. A reader that closes early is no error. */
export async function print(
  value: unknown,
  lines: readonly string[],
  form: OutputForm,
  out: Writable,
): Promise<void> {
  const text = await render(value, lines, form);
  await new Promise((resolve) => {
    out.once('error', resolve);
    out.write(text, resolve);
  });
}

async function render(value: unknown, lines: readonly string[], form: OutputForm): Promise<string> {
  // Escapes mean the same in JSON strings and in double-quoted YAML.
  if (form === 'json') return escapeLines(`${JSON.stringify(value, undefined, 2)}\n`);
  if (form === 'table') return `${lines.map(escapeControls).join('\n')}\n`;
  const { DEFAULT_SCALAR_STYLE_RULES, dump, SCALAR_STYLE } = await import('js-yaml');
  const scalarStyleRules: ScalarStyleRule[] = [
    ...Object.values(DEFAULT_SCALAR_STYLE_RULES),
    (layout) => {
      const { value } = layout.node;
      if (escapeControls(value) !== value) layout.style = SCALAR_STYLE.DOUBLE_QUOTED;
    },
  ];
  return escapeLines(dump(value, { lineWidth: -1, quoteStyle: 'double', scalarStyleRules }));
}
