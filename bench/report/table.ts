/** Rows of text, for the terminal and for docs/benchmarks.md. */

/** The cells of a table; the first row is the head. */
export type Rows = readonly (readonly string[])[];

/** Columns padded with blanks; all but the first two to the right. */
export function asText(rows: Rows, leftColumns = 2): string {
  const widths = columnWidths(rows);
  return rows
    .map((row) =>
      row
        .map((cell, column) => {
          const width = widths[column] ?? 0;
          return column < leftColumns ? cell.padEnd(width) : cell.padStart(width);
        })
        .join('   ')
        .trimEnd(),
    )
    .join('\n');
}

/** A table in Markdown. */
export function asMarkdown(rows: Rows, leftColumns = 2): string {
  const [head = [], ...body] = rows;
  const rule = head.map((_, column) => (column < leftColumns ? '---' : '---:'));
  return [head, rule, ...body].map((row) => `| ${row.join(' | ')} |`).join('\n');
}

function columnWidths(rows: Rows): number[] {
  const widths: number[] = [];
  for (const row of rows) {
    for (const [column, cell] of row.entries()) {
      widths[column] = Math.max(widths[column] ?? 0, cell.length);
    }
  }
  return widths;
}
