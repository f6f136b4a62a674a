/** Runs tap with one of its own reporters and counts the tests in the TAP that it writes. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { Parser, type Result } from 'tap-parser';
import { toolEnv, toolScript } from './check.ts';

/** Of one text in the details of a failure. Characters. */
const MAX_DETAIL = 4000;
const ROOT = join(import.meta.dirname, '..', '..');

/** Numbers of tests. */
export interface Tally {
  passed: number;
  failed: number;
  skipped: number;
}

export interface TapRun {
  readonly files: readonly string[];
  /** Path of another tap configuration than that of the repository. */
  readonly rcFile?: string;
  /** Whether a test that is skipped although it could run on this system counts as failed. */
  readonly strict: boolean;
  readonly env?: NodeJS.ProcessEnv;
}

/** The closing line, which CI reads. */
export function tallyLine({ passed, failed, skipped }: Tally): string {
  return `${passed} passed, ${failed} failed, ${skipped} skipped`;
}

/** Runs tap and adds to `total`. A test is a block without blocks inside. */
export async function runTap({ files, rcFile, strict, env }: TapRun, total: Tally): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'kpng-tap-'));
  const output = join(folder, 'output.tap');
  const reporter = process.stdout.isTTY ? 'base' : 'silent';
  const tap = spawn(
    process.execPath,
    [toolScript(ROOT, 'tap'), `--reporter=${reporter}`, `--output-file=${output}`, ...files],
    {
      cwd: ROOT,
      env: { ...toolEnv(ROOT), ...env, ...(rcFile !== undefined && { TAP_RCFILE: rcFile }) },
      stdio: ['ignore', 'inherit', 'inherit'],
    },
  );
  const [code, signal] = (await once(tap, 'close')) as [number | null, NodeJS.Signals | null];
  const tests: Tally = { passed: 0, failed: 0, skipped: 0 };
  try {
    const parser = new Parser();
    follow(parser, tests, strict);
    parser.end(readFileSync(output));
  } finally {
    rmSync(folder, { recursive: true });
  }
  if (sum(tests) === 0 || (code !== 0 && tests.failed === 0)) {
    tests.failed += 1;
    process.stdout.write(
      `FAIL  tap ended with ${signal ?? `code ${code}`} after ${sum(tests)} tests\n`,
    );
  }
  for (const key of ['passed', 'failed', 'skipped'] as const) total[key] += tests[key];
}

/** Counts the tests of a block and of those inside it. */
function follow(block: Parser, tests: Tally, strict: boolean, onFailure = () => {}): void {
  let before = { ...tests };
  let explained = false;
  block.on('child', (child: Parser) => {
    before = { ...tests };
    follow(child, tests, strict, () => (explained = true));
  });
  block.on('assert', (point: Result) => {
    // A block that failed by an assertion inside it adds nothing to that.
    const isExplained = point.closingTestPoint && explained;
    if (!point.ok && point.skip === false && !isExplained) printFailure(point);
    if (!point.ok) onFailure();
    if (point.closingTestPoint) explained = false;
    const reason = point.skip === true ? point.name : point.skip || point.todo;
    const isLeaf = sum(tests) === sum(before);
    if (reason !== false && (!point.closingTestPoint || isLeaf)) {
      const isRefused = strict && !mayBeSkipped(String(reason));
      if (isRefused) process.stdout.write(`FAIL  must not be skipped here: ${point.fullname}\n`);
      tests[isRefused ? 'failed' : 'skipped'] += 1;
    } else if (point.closingTestPoint && isLeaf) {
      tests[point.ok ? 'passed' : 'failed'] += 1;
    } else if (point.closingTestPoint && !point.ok && tests.failed === before.failed) {
      // It failed as a whole, as with a missed plan, or by an assertion beside its blocks.
      tests.failed += 1;
    }
    before = { ...tests };
  });
}

/** tap's own reporters print nothing where the output is not a terminal. */
function printFailure({ fullname, diag }: Result): void {
  const details = inspect(diag, { depth: 5, maxStringLength: MAX_DETAIL, breakLength: 110 });
  process.stdout.write(`FAIL  ${fullname}\n${details.replace(/^/gm, '      ')}\n`);
}

/** Only tests for another system, whose reason says so, may be skipped where everything has to run. */
function mayBeSkipped(reason: string): boolean {
  const system = /^only on (linux|windows|macos)/.exec(reason)?.[1];
  const platform = { linux: 'linux', windows: 'win32', macos: 'darwin' }[system ?? ''];
  return platform !== undefined && platform !== process.platform;
}

function sum({ passed, failed, skipped }: Tally): number {
  return passed + failed + skipped;
}
