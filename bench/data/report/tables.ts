/** The figures as rows of text: one table for each question, a row for each load, a column for each peer. */
import { threeDigits, withSpread } from '../../report/stats.ts';
import type { Rows } from '../../report/table.ts';
import type { DataLoadResult, DataReport, DataResult } from '../result.ts';

/** What tables are made of. */
type TableReport = Pick<DataReport, 'peers' | 'loads' | 'fixedRate' | 'idleConnection'>;

/** Those that have figures, by title. */
export function allTables(report: TableReport): Record<string, Rows> {
  const ofCpu = (cell: Cell): Rows => byLoad(report, ({ cpuUnit }) => cpuUnit, cell);
  const tables: Readonly<Record<string, Rows>> = {
    'CPU of the proxy': ofCpu((result) => withSpread(result?.own)),
    'CPU of the whole machine above direct': ofCpu(aboveDirect),
    'CPU of clients, servers and proxies': ofCpu((result) => withSpread(result?.run)),
    Throughput: byLoad(report, ({ rateUnit }) => rateUnit, rateCell),
    'Latency at a fixed rate, µs': fixedRateRows(report),
    'Latency at full speed, µs: p50 / p99 / p99.9': byLoad(report, () => 'µs', latencyCell),
    Memory: memoryRows(report),
  };
  return Object.fromEntries(Object.entries(tables).filter(([, rows]) => rows.length > 1));
}

type Cell = (result: DataResult | undefined, load: DataLoadResult) => string;

/** Rows of the loads that have a figure at all, of the peers that have one somewhere. */
function byLoad(
  { loads, peers }: TableReport,
  unit: (load: DataLoadResult) => string,
  cell: Cell,
): string[][] {
  const cells = loads.map((load) => peers.map(({ word }) => cell(load.results[word], load)));
  const columns = peers.flatMap((_, column) =>
    cells.some((row) => row[column] !== '') ? [column] : [],
  );
  return [
    ['', 'unit', ...columns.map((column) => peers[column]?.title ?? '')],
    ...loads.flatMap((load, index) => {
      const row = columns.map((column) => cells[index]?.[column] ?? '');
      return row.every((text) => text === '') ? [] : [[load.title, unit(load), ...row]];
    }),
  ];
}

function aboveDirect(result: DataResult | undefined, { results }: DataLoadResult): string {
  const { direct } = results;
  // Of no proxy, all of it.
  if (direct === undefined || result === undefined) return '';
  if (result === direct) return `(${threeDigits(direct.machine.median)})`;
  return threeDigits(result.machine.median - direct.machine.median);
}

function rateCell(result: DataResult | undefined): string {
  if (result === undefined) return '';
  const lost = result.lost >= 0.0005 ? `, ${(100 * result.lost).toFixed(1)} % lost` : '';
  return `${withSpread(result.rate)}${lost}`;
}

function latencyCell(result: DataResult | undefined): string {
  if (result?.latency === undefined) return '';
  const { p50, p99, p999 } = result.latency;
  return [p50, p99, p999].map((value) => value.toFixed(0)).join(' / ');
}

/** One row for each percentile. */
function fixedRateRows(report: TableReport): string[][] {
  const percentiles = ['p50', 'p90', 'p99', 'p999'] as const;
  const rows = report.fixedRate.flatMap((load) =>
    percentiles.map((percentile) => {
      const title = percentile === 'p50' ? load.title : '';
      const times = report.peers.map(({ word }) => load.results[word]?.latency?.[percentile]);
      const name = percentile === 'p999' ? 'p99.9' : percentile;
      return [title, name].concat(times.map((time) => time?.toFixed(0) ?? ''));
    }),
  );
  return [['', 'µs', ...report.peers.map(({ title }) => title)], ...rows];
}

function memoryRows({ peers, idleConnection }: TableReport): string[][] {
  const rows = peers.flatMap(({ word, title }) => {
    const bytes = idleConnection[word];
    return bytes === undefined ? [] : [[title, (bytes / 1024).toFixed(1)]];
  });
  return [['', 'KiB for each idle connection'], ...rows];
}

/** What could not be measured, and why, or not as usual; one line each. */
export function missingLines(
  report: Pick<DataReport, 'missing' | 'notes' | 'peers' | 'loads' | 'fixedRate'>,
): string[] {
  const { missing, notes, peers, loads, fixedRate } = report;
  const titleOf = (all: readonly { word: string; title: string }[], asked: string | undefined) =>
    all.find(({ word }) => word === asked)?.title ?? asked;
  const lines = missing.map(({ peer, load, why }) => {
    const what = [titleOf(peers, peer), titleOf([...loads, ...fixedRate], load)];
    return `missing: ${what.filter((word) => word !== undefined).join(', ')}: ${why}`;
  });
  return [...lines, ...notes];
}
