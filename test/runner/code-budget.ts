/** Keeps source files small: one idea each. */
import { globSync, readFileSync } from 'node:fs';

/** Longer hand-written source files fail the check. */
export const HARD_LIMIT = 400;
/** What the median should stay under. */
export const MEDIAN_GOAL = 200;
/** Lines of tests for each line of source. */
export const TEST_RATIO_GOAL = 1.2;

export interface FileSize {
  readonly file: string;
  readonly lines: number;
}

export interface Budget {
  readonly files: number;
  readonly lines: number;
  readonly median: number;
  readonly testLines: number;
  readonly tooLong: readonly FileSize[];
}

/** Weighs source files against test files. */
export function weigh(source: readonly FileSize[], test: readonly FileSize[]): Budget {
  const sorted = source.map((size) => size.lines).sort((a, b) => a - b);
  return {
    files: source.length,
    lines: sum(source),
    median: sorted[Math.floor(sorted.length / 2)] ?? 0,
    testLines: sum(test),
    tooLong: source.filter((size) => size.lines > HARD_LIMIT),
  };
}

/** Measures the repository at `root`; generated files do not count. */
export function measure(root: string): Budget {
  return weigh(sizes(root, 'src/**/*.ts'), sizes(root, 'test/**/*.ts'));
}

/** One line for people. */
export function describe(budget: Budget): string {
  const ratio = budget.lines === 0 ? 0 : budget.testLines / budget.lines;
  const notes = [
    budget.median > MEDIAN_GOAL ? `median above ${MEDIAN_GOAL}` : '',
    ratio < TEST_RATIO_GOAL ? `tests below ${TEST_RATIO_GOAL} x source` : '',
  ].filter((note) => note !== '');
  const text = `${budget.files} files, ${budget.lines} lines, median ${budget.median}, tests ${ratio.toFixed(2)} x`;
  return notes.length === 0 ? text : `${text} (${notes.join(', ')})`;
}

function sizes(root: string, pattern: string): FileSize[] {
  return globSync(pattern, { cwd: root })
    .filter((file) => !/[\\/]generated[\\/]/.test(file))
    .map((file) => ({
      file,
      lines: readFileSync(`${root}/${file}`, 'utf8').split('\n').length - 1,
    }));
}

function sum(list: readonly FileSize[]): number {
  return list.reduce((total, size) => total + size.lines, 0);
}
