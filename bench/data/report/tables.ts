/** The figures as rows of text: one table for each question, a row for each load, a column for each peer. */
import { threeDigits, type Summary } from '../../report/stats.ts';
import type { Rows } from '../../report/table.ts';
import type { DataLoadResult, DataReport, DataResult } from '../result.ts';

export interface Table {
  readonly title: string;
  readonly rows: Rows;
}

/** What tables are made of. */
type TableReport = Pick<DataReport, 'peers' | 'loads' | 'fixedRate' | 'idleConnection'>;

/** Those that have figures. */
export function allTables(report: TableReport): Table[] {
  const tables: readonly Table[] = [
    { title: 'CPU of the proxy', rows: ownRows(report) },
    { title: 'CPU of the whole machine above direct', rows: machineRows(report) },
    { title: 'CPU of clients, servers and proxies', rows: runRows(report) },
    { title: 'Throughput', rows: rateRows(report) },
    { title: 'Latency at a fixed rate, µs', rows: fixedRateRows(report) },
    { title: 'Latency at full speed, µs: p50 / p99 / p99.9', rows: latencyRows(report) },
    { title: 'Memory', rows: memoryRows(report) },
  ];
  return tables.filter(({ rows }) => rows.length > 1);
}

type Cell = (result: DataResult | undefined, load: DataLoadResult) => string;

/** Rows of the loads that have a figure at all, of the peers that have one somewhere. */
function byLoad(
  report: TableReport,
  loads: readonly DataLoadResult[],
  unit: (load: DataLoadResult) => string,
  cell: Cell,
): string[][] {
  const cells = loads.map((load) => report.peers.map(({ word }) => cell(load.results[word], load)));
  const columns = report.peers.flatMap((_, column) =>
    cells.some((row) => row[column] !== '') ? [column] : [],
  );
  return [
    ['', 'unit', ...columns.map((column) => report.peers[column]?.title ?? '')],
    ...loads.flatMap((load, index) => {
      const row = columns.map((column) => cells[index]?.[column] ?? '');
      return row.every((text) => text === '') ? [] : [[load.title, unit(load), ...row]];
    }),
  ];
}

function ownRows(report: TableReport): string[][] {
  return byLoad(
    report,
    report.loads,
    ({ cpuUnit }) => cpuUnit,
    (result) => withSpread(result?.own),
  );
}

function machineRows(report: TableReport): string[][] {
  return byLoad(
    report,
    report.loads,
    ({ cpuUnit }) => cpuUnit,
    (result, { results }) => {
      const { direct } = results;
      // Of no proxy, all of it.
      if (direct === undefined || result === undefined) return '';
      if (result === direct) return `(${threeDigits(direct.machine.median)})`;
      return threeDigits(result.machine.median - direct.machine.median);
    },
  );
}

function runRows(report: TableReport): string[][] {
  return byLoad(
    report,
    report.loads,
    ({ cpuUnit }) => cpuUnit,
    (result) => withSpread(result?.run),
  );
}

function rateRows(report: TableReport): string[][] {
  return byLoad(
    report,
    report.loads,
    ({ rateUnit }) => rateUnit,
    (result) => {
      if (result === undefined) return '';
      const lost = result.lost >= 0.0005 ? `, ${(100 * result.lost).toFixed(1)} % lost` : '';
      return `${withSpread(result.rate)}${lost}`;
    },
  );
}

function latencyRows(report: TableReport): string[][] {
  return byLoad(
    report,
    report.loads,
    () => 'µs',
    (result) => {
      if (result?.latency === undefined) return '';
      const { p50, p99, p999 } = result.latency;
      return [p50, p99, p999].map((value) => value.toFixed(0)).join(' / ');
    },
  );
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
export function missingLines({
  missing,
  notes,
  peers,
  loads,
  fixedRate,
}: Pick<DataReport, 'missing' | 'notes' | 'peers' | 'loads' | 'fixedRate'>): string[] {
  const lines = missing.map(({ peer, load, why }) => {
    const who = peers.find(({ word }) => word === peer)?.title ?? peer;
    const what = [...loads, ...fixedRate].find(({ word }) => word === load)?.title ?? load;
    return `missing: ${[who, what].filter((word) => word !== undefined).join(', ')}: ${why}`;
  });
  return [...lines, ...notes];
}

function withSpread(summary: Summary | undefined): string {
  if (summary === undefined) return '';
  const { median, min, max, samples } = summary;
  if (samples === 1) return threeDigits(median);
  return `${threeDigits(median)} (${threeDigits(min)}-${threeDigits(max)})`;
}
