import { PER_PART } from '../observe/parts.ts';
import type { ServiceRow } from './views.ts';

const COLUMNS: readonly (readonly [string, (row: ServiceRow) => string | number])[] = [
  ['service', ({ name }) => name],
  ['protocol', ({ protocol }) => protocol],
  ['state', ({ state }) => state],
  ['addresses', ({ addresses }) => addresses.join(' ')],
  ['endpoints_usable', ({ endpoints }) => endpoints.usable],
  ['endpoints_total', ({ endpoints }) => endpoints.total],
  ['listeners_open', ({ listeners }) => listeners.open],
  ['listeners_failed', ({ listeners }) => listeners.failed],
  ['active', ({ active }) => active],
  ['connections', ({ totals }) => totals.connections],
  ['bytes_in', ({ totals }) => totals.bytesIn],
  ['bytes_out', ({ totals }) => totals.bytesOut],
  ['errors', ({ totals }) => totals.errors],
  ['connections_per_second', ({ rates }) => rates.connections],
  ['bytes_in_per_second', ({ rates }) => rates.bytesIn],
  ['bytes_out_per_second', ({ rates }) => rates.bytesOut],
  ['errors_per_second', ({ rates }) => rates.errors],
];

/** Service ports as CSV (RFC 4180), in pieces. */
export async function* csvOf(rows: readonly ServiceRow[]): AsyncGenerator<string> {
  yield lineOf(COLUMNS.map(([title]) => title));
  for (let start = 0; start < rows.length; start += PER_PART) {
    const some = rows.slice(start, start + PER_PART);
    yield some.map((row) => lineOf(COLUMNS.map(([, value]) => value(row)))).join('');
  }
}

function lineOf(values: readonly (string | number)[]): string {
  return `${values.map(cell).join(',')}\r\n`;
}

/** A spreadsheet would treat text that begins with one of these characters as a formula. */
const FORMULA = /^[=+\-@\t\r]/;

function cell(value: string | number): string {
  if (typeof value === 'number') return String(value);
  const text = FORMULA.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
