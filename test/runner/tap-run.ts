/** Runs test files that `npm test` leaves out, with a tap configuration of their own. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { toolEnv } from './check.ts';
import { fileLine, problemLines } from './print.ts';
import { judgeSkips } from './skip-policy.ts';
import { readTap, type FileReport, type Tally } from './tap-report.ts';

const ROOT = join(import.meta.dirname, '..', '..');

export interface TapRun {
  readonly files: readonly string[];
  /** Path of the tap configuration. */
  readonly rcFile: string;
  /** Whether a test that is skipped although it could run on this system is a failure. */
  readonly strict: boolean;
  readonly env?: NodeJS.ProcessEnv;
}

/** Runs tap, prints a line for each file and what failed, and adds what came of it to `total`. */
export async function runTap({ files, rcFile, strict, env }: TapRun, total: Tally): Promise<void> {
  const report = (file: FileReport): void => {
    const { report: judged, refused } = judgeSkips(file, strict, process.platform);
    total.passed += judged.passed;
    total.failed += judged.failed;
    total.skipped += judged.skipped;
    process.stdout.write(`${[fileLine(judged), ...problemLines(judged, refused)].join('\n')}\n`);
  };
  const tap = spawn('tap', ['--reporter=tap', ...files], {
    cwd: ROOT,
    env: { ...toolEnv(ROOT), ...env, TAP_RCFILE: rcFile },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = once(tap, 'close') as Promise<[number | null]>;
  const counted = await readTap(tap.stdout, report);
  const [code] = await ended;
  const ran = counted.passed + counted.failed + counted.skipped;
  if (ran === 0 || (code !== 0 && total.failed === 0)) {
    total.failed += 1;
    process.stdout.write(`  FAIL  tap ended with ${code} after ${ran} tests\n`);
  }
}
