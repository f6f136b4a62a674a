/**
 * `npm test`: format, lint, types, generated code and size of the source, then the tests.
 *
 *     npm test                     everything
 *     npm test -- test/client      the checks, and only these tests
 *
 * The tests of sockets run once more against the `linux` engine, where there is one.
 *
 * Ends with one plain line, `N passed, N failed, N skipped`; each check counts as one. With CI=true
 * a test that is skipped although it could run here is a failure.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { globSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { runChecks, toolEnv, toolScript, type Check, type CheckResult } from './runner/check.ts';
import { describe, HARD_LIMIT, measure } from './runner/code-budget.ts';
import { enginePasses, hasLinuxEngine } from './runner/engine-passes.ts';
import { judgeSkips } from './runner/skip-policy.ts';
import { checkLine, fileLine, indent, problemLines, tallyLine } from './runner/print.ts';
import { readTap, type FileReport, type Tally } from './runner/tap-report.ts';

const root = join(import.meta.dirname, '..');
const strict = process.env['CI'] === 'true';
/** Standard error of the tests that is kept to be shown after a failure. */
const MAX_STDERR = 64 * 1024;

const tool = (packageName: string, command?: string): string =>
  toolScript(root, packageName, command);

const checks: readonly Check[] = [
  { name: 'format', script: tool('prettier'), args: ['--check', '--log-level', 'warn', '.'] },
  { name: 'lint', script: tool('oxlint'), args: ['--type-aware', '--deny-warnings'] },
  { name: 'types', script: tool('typescript', 'tsc'), args: ['--noEmit'] },
  { name: 'generated', script: 'src/api/proto/generate.ts', args: ['--check'] },
  {
    name: 'size',
    run() {
      const budget = measure(root);
      const tooLong = budget.tooLong
        .map((size) => `${size.file}: ${size.lines} lines, the limit is ${HARD_LIMIT}\n`)
        .join('');
      return { ok: tooLong === '', text: `${describe(budget)}\n${tooLong}` };
    },
  },
];

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

async function main(paths: readonly string[]): Promise<boolean> {
  const total: Tally = { passed: 0, failed: 0, skipped: 0 };
  print(`node ${process.version} on ${process.platform} ${process.arch}\n\nchecks`);
  await runChecks(checks, 2, root, (result) => {
    total[result.ok ? 'passed' : 'failed'] += 1;
    reportCheck(result);
  });
  print('\ntests');
  await runTests(paths, total);
  for (const { engine, files } of hasLinuxEngine(process.platform, process.version)
    ? enginePasses(paths)
    : []) {
    print(`\ntests, again with the engine: ${engine}`);
    await runTests(files, total, { KPNG_TEST_ENGINE: engine });
  }
  print(`\n${tallyLine(total)}`);
  return total.failed === 0;
}

function reportCheck(result: CheckResult): void {
  print(checkLine(result));
  if (!result.ok) print(indent(result.output, 8));
}

/** A folder stands for the test files in it; tap itself would run every file there. */
function testFiles(path: string): string[] {
  const isFolder = statSync(join(root, path), { throwIfNoEntry: false })?.isDirectory() === true;
  return isFolder ? globSync(`${path}/**/*.test.ts`, { cwd: root }) : [path];
}

/** Runs tap and adds what came of it to `total`. */
async function runTests(
  paths: readonly string[],
  total: Tally,
  env: NodeJS.ProcessEnv = {},
): Promise<void> {
  const tap = spawn(
    process.execPath,
    [tool('tap'), '--reporter=tap', ...paths.flatMap(testFiles)],
    {
      cwd: root,
      env: { ...toolEnv(root), ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  );
  let stderr = '';
  tap.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr = (stderr + text).slice(-MAX_STDERR);
  });
  const ended = once(tap, 'close') as Promise<[number | null, NodeJS.Signals | null]>;
  const tests = await readTap(tap.stdout, (file) => reportFile(file, total));
  const [code, signal] = await ended;
  const counted = total.failed;
  if (tests.passed + tests.failed + tests.skipped === 0) {
    total.failed += 1;
    print('  FAIL  no test was run');
  } else if (code !== 0 && tests.failed === 0) {
    total.failed += 1;
    print(`  FAIL  tap ended with ${signal ?? `code ${code}`} though no test failed`);
  }
  if ((tests.failed > 0 || total.failed > counted) && stderr.trim() !== '') {
    print(`\nstandard error of the tests\n${indent(stderr, 4)}`);
  }
}

function reportFile(file: FileReport, total: Tally): void {
  const { report, refused } = judgeSkips(file, strict, process.platform);
  total.passed += report.passed;
  total.failed += report.failed;
  total.skipped += report.skipped;
  print(fileLine(report));
  for (const line of problemLines(report, refused)) print(line);
}

// Whoever read the output has gone (`npm test | head`): there is nobody left to tell.
process.stdout.on('error', () => process.exit(1));
process.exitCode = (await main(process.argv.slice(2))) ? 0 : 1;
