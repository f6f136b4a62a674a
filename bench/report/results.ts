/**
 * What a run has found, as tables: docs/benchmarks/NAME.json. The page docs/benchmarks.md shows parts of
 * them (page.ts).
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Rows } from './table.ts';

const ROOT = join(import.meta.dirname, '../..');
const FOLDER = join(ROOT, 'docs/benchmarks');

export interface Results {
  readonly date: string;
  /** One line, by `describeMachine`. */
  readonly machine: string;
  /** How it was measured: rounds, seconds, sizes. */
  readonly about: Readonly<Record<string, string | number>>;
  readonly tables: Readonly<Record<string, Rows>>;
  /** What is missing, and why. */
  readonly notes?: readonly string[];
}

export type ResultsName =
  'abuse' | 'control' | 'data' | 'loopback' | 'portals' | 'rest' | 'scaling' | 'soak';

export function readResults(name: ResultsName): Results {
  return JSON.parse(readFileSync(join(FOLDER, `${name}.json`), 'utf8')) as Results;
}

export function writeResults(name: ResultsName, results: Results): void {
  mkdirSync(FOLDER, { recursive: true });
  writeFileSync(join(FOLDER, `${name}.json`), asJson(results));
}

/** A line for each row of a table, so that a new run is a readable change. */
export function asJson(results: Results): string {
  const text = JSON.stringify(results, null, 2);
  const rows = text.replaceAll(/\[\n +("[^[\]]*")\n +\]/g, (row) => row.replaceAll(/\n */g, ' '));
  return `${rows}\n`;
}
