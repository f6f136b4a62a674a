/** Rows of text, for the terminal and for docs/benchmarks.md. */

/** The cells of a table; the first row is the head. */
export type Rows = readonly (readonly string[])[];

/** Columns padded with blanks, those of numbers to the right. */
export function asText(rows: Rows): string {
  const [head = [], ...body] = rows;
  const columns = head.map((_, column) => ({
    width: Math.max(...rows.map((row) => row[column]?.length ?? 0)),
    isText: body.some((row) => /^[^\d(-]/.test(row[column] ?? '')),
  }));
  const lines = rows.map((row) =>
    columns.map(({ width, isText }, column) => {
      const cell = row[column] ?? '';
      return isText ? cell.padEnd(width) : cell.padStart(width);
    }),
  );
  return lines.map((cells) => cells.join('   ').trimEnd()).join('\n');
}

/** A table in Markdown. */
export function asMarkdown(rows: Rows, leftColumns: number): string {
  const [head = [], ...body] = rows;
  const rule = head.map((_, column) => (column < leftColumns ? '---' : '---:'));
  return [head, rule, ...body].map((row) => `| ${row.join(' | ')} |`).join('\n');
}
