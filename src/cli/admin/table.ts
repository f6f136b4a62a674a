import { escapeControls } from '../../util/terminal-text.ts';

/** One column of a table. */
export interface Column<Row> {
  readonly title: string;
  /** Numbers stand to the right. */
  readonly align?: 'left' | 'right';
  readonly cell: (row: Row) => string;
}

/** Lines of a table with a head; columns are as wide as they need to be. */
export function table<Row>(columns: readonly Column<Row>[], rows: readonly Row[]): string[] {
  const cells = rows.map((row) => columns.map(({ cell }) => escapeControls(cell(row))));
  const titles = columns.map(({ title }) => title);
  const widths = titles.map((title, index) =>
    cells.reduce((widest, line) => Math.max(widest, line[index]?.length ?? 0), title.length),
  );
  return [titles, ...cells].map((line) =>
    line
      .map((text, index) => pad(text, widths[index] ?? 0, columns[index]?.align ?? 'left'))
      .join('  ')
      .trimEnd(),
  );
}

/** Two columns, for names and what they are. */
export function pairs(list: readonly (readonly [string, string])[]): string[] {
  const width = Math.max(...list.map(([name]) => name.length));
  return list.map(([name, text]) => `${name.padEnd(width)}  ${escapeControls(text)}`.trimEnd());
}

export function pad(text: string, width: number, align: 'left' | 'right'): string {
  return align === 'right' ? text.padStart(width) : text.padEnd(width);
}
