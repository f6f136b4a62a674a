/** What is printed, and docs/benchmarks/abuse.json. */
import { resultsOf, type Results } from '../report/results.ts';
import type { Result } from './scenario.ts';

const HEAD = [
  'abuse',
  'engine',
  'what was done',
  'memory MiB',
  'exchanges',
  'lost',
  'datagrams',
  'datagrams lost',
  'p99 ms',
  'verdict',
];

const mib = (bytes: number): string => (bytes / 1024 ** 2).toFixed(0);

/** One line for the terminal. */
export function resultLine(result: Result, reasons: readonly string[]): string {
  const { name, engine, seconds } = result;
  const verdict = reasons.length === 0 ? 'ok  ' : 'FAIL';
  const [, , , memory, exchanges, lost, datagrams, datagramsLost, p99] = row(result, reasons);
  const control = `${exchanges} exchanges, ${lost} lost; ${datagrams} datagrams, ${datagramsLost} lost; p99 ${p99} ms`;
  const figures = `${memory} MiB; ${result.control === undefined ? '-' : control}`;
  const why = reasons.length === 0 ? '' : `\n      ${reasons.join('\n      ')}`;
  return `${verdict}  ${name} (${engine}, ${seconds.toFixed(1)} s): ${result.did}; ${figures}${why}`;
}

/**
 * docs/benchmarks/abuse.json: a row for each scenario and engine. With `before`, only the rows of these
 * scenarios and engines are new.
 */
export function abuseResults(
  results: readonly { readonly result: Result; readonly reasons: readonly string[] }[],
  before?: Results,
): Results {
  const rows = new Map<string, readonly string[]>();
  const put = (cells: readonly string[]): void => void rows.set(cells.slice(0, 2).join(), cells);
  before?.tables['Abuses']?.slice(1).forEach(put);
  for (const { result, reasons } of results) put(row(result, reasons));
  return resultsOf({ about: {}, tables: { Abuses: [HEAD, ...rows.values()] } });
}

function row(result: Result, reasons: readonly string[]): string[] {
  const { title, engine, did, memory, control } = result;
  return [
    title,
    engine,
    did,
    `${mib(memory.rest)} → ${mib(memory.peak)}`,
    ...(control === undefined ? Array<string>(5).fill('-') : traffic(control)),
    reasons.length === 0 ? 'withstood' : `failed: ${reasons.join('; ')}`,
  ];
}

function traffic({ rest, during }: NonNullable<Result['control']>): string[] {
  const { exchanged, lost, refused, datagrams, datagramsLost } = during;
  return [
    String(exchanged),
    String(lost + refused),
    String(datagrams),
    String(datagramsLost),
    `${rest.p99.toFixed(1)} → ${during.p99.toFixed(1)}`,
  ];
}
