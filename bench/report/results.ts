/**
 * What a run has found, as tables: docs/benchmarks/NAME.json. The page docs/benchmarks.md shows parts of
 * them (page.ts).
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism, cpus, release, totalmem, type } from 'node:os';
import { join } from 'node:path';
import type { Rows } from './table.ts';

const FOLDER = join(import.meta.dirname, '../../docs/benchmarks');

/** What a run finds. */
export interface Findings {
  /** How it was measured: rounds, seconds, sizes. */
  readonly about: Readonly<Record<string, string | number>>;
  readonly tables: Readonly<Record<string, Rows>>;
  /** What is missing, and why. */
  readonly notes?: readonly string[];
}

export interface Results extends Findings {
  readonly date: string;
  /** One line: what the figures were measured on. */
  readonly machine: string;
}

export type ResultsName =
  'abuse' | 'control' | 'data' | 'loopback' | 'portals' | 'rest' | 'scaling' | 'soak';

/** With the date of today, such as `2026-01-31`, and this machine. */
export function resultsOf(findings: Findings): Results {
  const cpu = cpus()[0]?.model.trim() ?? 'unknown CPU';
  const memory = Math.round(totalmem() / 1024 ** 3);
  const machine = `${cpu}, ${availableParallelism()} cores, ${memory} GiB, ${type()} ${release()}, Node ${process.version}`;
  return { date: new Date().toISOString().slice(0, 10), machine, ...findings };
}

export function readResults(name: ResultsName): Results {
  return JSON.parse(readFileSync(join(FOLDER, `${name}.json`), 'utf8')) as Results;
}

/** A line for each row of a table, so that a new run is a readable change. */
export function writeResults(name: ResultsName, results: Results): void {
  mkdirSync(FOLDER, { recursive: true });
  const text = JSON.stringify(results, null, 2);
  const rows = text.replaceAll(/\[\n +("[^[\]]*")\n +\]/g, (row) => row.replaceAll(/\n */g, ' '));
  writeFileSync(join(FOLDER, `${name}.json`), `${rows}\n`);
}
