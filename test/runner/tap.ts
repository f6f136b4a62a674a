/**
 * Runs test files, in processes of their own, and counts the tests in the TAP that they write. `tap` itself would load
 * its hooks into every program that a test starts, and into every thread of those: half of the time of all tests.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { Parser, type FinalResults, type Result } from 'tap-parser';
import { forEach, toolEnv } from './check.ts';

/** Of one text in the details of a failure, and of what a process that failed wrote to stderr. Characters. */
const MAX_DETAIL = 4000;
/** For a process to end by itself after its time is over: it says then what it was waiting for. Milliseconds. */
const GRACE_MS = 10_000;
const ROOT = join(import.meta.dirname, '..', '..');
const TOGETHER = 'test/runner/together.ts';

/** Numbers of tests. */
export interface Tally {
  passed: number;
  failed: number;
  skipped: number;
}

/** What runs in one process. */
export interface TestProcess {
  readonly name: string;
  /** Below the root of the repository. */
  readonly files: readonly string[];
  /** Tests of sockets, against an engine of `support/engine-under-test.ts`. */
  readonly engine?: 'linux' | 'documented';
}

/** A file in a process of its own. */
export const oneFile = (path: string): TestProcess => ({ name: path, files: [path] });

interface TestRun {
  readonly processes: readonly TestProcess[];
  /** How many run at a time. */
  readonly jobs: number;
  /** For one process, on a loaded machine. Seconds. */
  readonly timeoutS: number;
  /** Whether a test that is skipped although it could run on this system counts as failed. */
  readonly strict: boolean;
}

/** The closing line, which CI reads. */
export function tallyLine({ passed, failed, skipped }: Tally): string {
  return `${passed} passed, ${failed} failed, ${skipped} skipped`;
}

/** Runs all files and adds to `total`. A test is a block without blocks inside. */
export async function runTests(run: TestRun, total: Tally): Promise<void> {
  await forEach(run.processes, run.jobs, async (next) => {
    const tests = await runProcess(next, run);
    for (const key of ['passed', 'failed', 'skipped'] as const) total[key] += tests[key];
  });
}

async function runProcess(
  { name, files, engine }: TestProcess,
  { timeoutS, strict }: TestRun,
): Promise<Tally> {
  const tests: Tally = { passed: 0, failed: 0, skipped: 0 };
  // In a group of its own, so that what it has started ends with it.
  const detached = process.platform !== 'win32';
  const child = spawn(process.execPath, files.length === 1 ? files : [TOGETHER, name], {
    cwd: ROOT,
    detached,
    // Proxies that run beside each other would quarrel about the default admin socket.
    env: {
      ...toolEnv(ROOT),
      KPNG_ADMIN_SOCKET: '',
      KPNG_TEST_FILES: JSON.stringify(files),
      TAP_TIMEOUT: String(timeoutS),
      ...(engine !== undefined && { KPNG_TEST_ENGINE: engine }),
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let stderr = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr = (stderr + text).slice(-MAX_DETAIL);
  });
  const kill = (): void => {
    if (detached && child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
    else child.kill('SIGKILL');
  };
  const timer = setTimeout(kill, timeoutS * 1000 + GRACE_MS);
  const parser = new Parser();
  follow(parser, name, tests, strict);
  child.stdout.pipe(parser);
  const [[results], [code, signal]] = (await Promise.all([
    once(parser, 'complete'),
    once(child, 'close'),
  ])) as [[FinalResults], [number | null, NodeJS.Signals | null]];
  clearTimeout(timer);
  const isGood = results.ok && code === 0;
  // Assertions beside blocks, and files that end early.
  if (sum(tests) === 0) tests[isGood ? 'passed' : 'failed'] += 1;
  else if (!isGood && tests.failed === 0) tests.failed += 1;
  if (!isGood) {
    const failures = results.failures.map(({ name, tapError }) => tapError ?? name).join('; ');
    print(`FAIL  ${name} ended with ${signal ?? `code ${code}`}; ${failures}\n${stderr}`);
  }
  return tests;
}

export function print(text: string): void {
  process.stdout.write(text.endsWith('\n') ? text : `${text}\n`);
}

/** Counts the tests of a block and of those inside it. */
function follow(
  block: Parser,
  file: string,
  tests: Tally,
  strict: boolean,
  onFailure = () => {},
): void {
  let before = { ...tests };
  let explained = false;
  block.on('child', (child: Parser) => {
    before = { ...tests };
    follow(child, file, tests, strict, () => (explained = true));
  });
  block.on('assert', (point: Result) => {
    // A block that failed by an assertion inside it adds nothing to that.
    const isExplained = point.closingTestPoint && explained;
    if (!point.ok && point.skip === false && !isExplained) printFailure(file, point);
    if (!point.ok) onFailure();
    if (point.closingTestPoint) explained = false;
    const reason = point.skip === true ? point.name : point.skip || point.todo;
    const isLeaf = sum(tests) === sum(before);
    if (reason !== false && (!point.closingTestPoint || isLeaf)) {
      const isRefused = strict && !mayBeSkipped(String(reason));
      if (isRefused) print(`FAIL  must not be skipped here: ${file} > ${point.fullname}`);
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

function printFailure(file: string, { fullname, diag }: Result): void {
  const details = inspect(diag, { depth: 5, maxStringLength: MAX_DETAIL, breakLength: 110 });
  print(`FAIL  ${file} > ${fullname}\n${details.replace(/^/gm, '      ')}`);
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
