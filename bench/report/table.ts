/** The results as rows of text, for the terminal and for docs/benchmarks.md. */
import type { Report } from './report.ts';
import { threeDigits, type Summary } from './stats.ts';

/** The cells of a table; the first row is the head. */
export type Rows = readonly (readonly string[])[];

/** Speed, CPU and latency: two or three rows for each load, a column for each peer. */
export function loadRows(report: Report): string[][] {
  const rows = [['load', 'figure', ...report.peers]];
  for (const load of report.loads) {
    const cells = (pick: (peer: string) => string): string[] => report.peers.map(pick);
    rows.push([
      load.title,
      load.rateUnit,
      ...cells((peer) => withSpread(load.results[peer]?.rate)),
    ]);
    rows.push(['', `CPU ${load.cpuUnit}`, ...cells((peer) => withSpread(load.results[peer]?.cpu))]);
    if (Object.values(load.results).some((result) => result.p50 !== undefined)) {
      rows.push([
        '',
        'p50 / p99 µs',
        ...cells((peer) => {
          const result = load.results[peer];
          return `${middle(result?.p50)} / ${middle(result?.p99)}`;
        }),
      ]);
    }
  }
  return rows;
}

/** Memory of the idle proxy. */
export function memoryRows(report: Report): string[][] {
  const mb = (bytes: number): string => (bytes / 1e6).toFixed(0);
  return [
    ['idle proxy with', 'resident MB', 'its own MB', 'ready after ms'],
    ...report.idle.map((idle) => [
      `${idle.servicePorts} service ports`,
      mb(idle.resident),
      mb(idle.anonymous),
      idle.readyMs.toFixed(0),
    ]),
  ];
}

function withSpread(summary: Summary | undefined): string {
  if (summary === undefined) return '-';
  if (summary.samples === 1) return threeDigits(summary.median);
  const { median, min, max } = summary;
  return `${threeDigits(median)} (${threeDigits(min)}-${threeDigits(max)})`;
}

function middle(summary: Summary | undefined): string {
  return summary === undefined ? '-' : summary.median.toFixed(0);
}

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
