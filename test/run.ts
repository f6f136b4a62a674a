/**
 * `npm test`: format, lint, types, generated code and size of files, then the tests, those of sockets once more
 * against the `linux` engine, where there is one.
 *
 *     npm test                     everything
 *     npm test -- test/client      the checks, and only these tests
 *     npm run test:fast            types, lint, units, and the relay contract with one engine
 *
 * Ends with one plain line, `N passed, N failed, N skipped`; each check counts as one. With CI=true a test that is
 * skipped although it could run here is a failure.
 */
import { globSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { runChecks, toolScript, type Check } from './runner/check.ts';
import { hasLinuxEngine, WITH_LINUX } from './runner/linux-engine.ts';
import { runTests, tallyLine, type Tally, type TestFile } from './runner/tap.ts';
import { UNIT_FOLDERS } from './runner/units.ts';

const ROOT = join(import.meta.dirname, '..');
/** Lines of a file, generated ones aside. */
const LONGEST = 400;
/** At a time; many of them mostly wait. */
const JOBS = 4;
/** For one file, on a loaded machine. Seconds. */
const TIMEOUT_S = 120;
/** These load the machine; what else is measured in time should not run beside them. */
const ALONE = /^test\/(?:bench|demo)\//;
/** They take longest, so they begin first. */
const LONG = /^test\/(?:runner|cli\/handover|docs|file|fuzz|sea|proxysocket\/pool)/;
/** One process for all of these. */
const UNITS = 'test/runner/units.ts';
const IN_UNITS = new RegExp(`^test/(?:${UNIT_FOLDERS.join('|')})/`);
/** They have commands of their own. */
const ELSEWHERE = /^test\/(?:system|deploy\/checks)\//;
/** What `test:fast` runs. */
const FAST = [UNITS].concat(
  ['connect', 'half-close', 'limits', 'lost-endpoint', 'reset'].map(
    (name) => `test/proxysocket/tcp/${name}.test.ts`,
  ),
);

const types: Check = { name: 'types', script: tool('typescript', 'tsc'), args: ['--noEmit'] };
const lint: Check = {
  name: 'lint',
  script: tool('oxlint'),
  args: ['--type-aware', '--deny-warnings'],
};
const others: readonly Check[] = [
  { name: 'format', script: tool('prettier'), args: ['--check', '--log-level', 'warn', '.'] },
  { name: 'prose', script: 'tools/prose/lint.ts', args: [] },
  { name: 'generated', script: 'src/api/proto/generate.ts', args: ['--check'] },
  { name: 'size', run: sizes },
];

function tool(packageName: string, command?: string): string {
  return toolScript(ROOT, packageName, command);
}

function sizes(): { ok: boolean; output: string } {
  const long = globSync('{src,test}/**/*.ts', { cwd: ROOT })
    .filter((file) => !/[\\/]generated[\\/]/.test(file))
    .map((file) => ({ file, lines: readFileSync(join(ROOT, file), 'utf8').split('\n').length - 1 }))
    .filter(({ lines }) => lines > LONGEST);
  const output = long.map(({ file, lines }) => `${file}: ${lines} lines, more than ${LONGEST}\n`);
  return { ok: long.length === 0, output: output.join('') };
}

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

async function main(args: readonly string[]): Promise<boolean> {
  const fast = args[0] === '--fast';
  const asked = fast ? args.slice(1) : args;
  const total: Tally = { passed: 0, failed: 0, skipped: 0 };
  print(`node ${process.version} on ${process.platform} ${process.arch}`);
  const strict = process.env['CI'] === 'true';
  const files = asked.length > 0 ? asked.flatMap(testFiles) : fast ? FAST : allFiles();
  const run = { timeoutS: TIMEOUT_S, strict };
  const checked = runChecks(fast ? [types, lint] : [lint, types, ...others], ROOT, (result) => {
    total[result.ok ? 'passed' : 'failed'] += 1;
    print(`${result.ok ? 'ok  ' : 'FAIL'}  ${result.name} ${(result.ms / 1000).toFixed(1)} s`);
    if (!result.ok) print(result.output);
  });
  const again = fast || !hasLinuxEngine(process.platform, process.version) ? [] : WITH_LINUX;
  const paths = new Set(files);
  const all = [
    ...files.map((path): TestFile => ({ path })),
    ...again.filter(({ path }) => paths.has(path)),
  ];
  const alone = all.filter(({ path }) => ALONE.test(path));
  const beside = longestFirst(all.filter(({ path }) => !ALONE.test(path)));
  await Promise.all([checked, runTests({ ...run, files: beside, jobs: JOBS }, total)]);
  await runTests({ ...run, files: alone, jobs: 1 }, total);
  print(`\n${tallyLine(total)}`);
  return total.failed === 0;
}

function longestFirst(files: readonly TestFile[]): TestFile[] {
  return files.toSorted((a, b) => Number(LONG.test(b.path)) - Number(LONG.test(a.path)));
}

function allFiles(): string[] {
  const files = testFiles('test').filter((file) => !ELSEWHERE.test(file) && !IN_UNITS.test(file));
  return [UNITS, ...files];
}

/** A folder stands for the test files in it. */
function testFiles(path: string): string[] {
  const isFolder = statSync(join(ROOT, path), { throwIfNoEntry: false })?.isDirectory() === true;
  if (!isFolder) return [path];
  return globSync(`${path}/**/*.test.ts`, { cwd: ROOT })
    .map((file) => file.replaceAll('\\', '/'))
    .sort();
}

// A reader of the output may leave early (`npm test | head`).
process.stdout.on('error', () => process.exit(1));
process.exitCode = (await main(process.argv.slice(2))) ? 0 : 1;
