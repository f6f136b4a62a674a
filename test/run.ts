/**
 * `npm test`: format, lint, types, generated code and size of files, then the tests, those of sockets once more
 * against the `linux` engine, where there is one, and those of TCP with only what Node documents.
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
import { DOCUMENTED, hasLinuxEngine, WITH_LINUX } from './runner/linux-engine.ts';
import { runTests, tallyLine, type Tally, type TestProcess } from './runner/tap.ts';

const ROOT = join(import.meta.dirname, '..');
/** Lines of a file, generated ones aside. */
const LONGEST = 400;
/** At a time; many of them mostly wait. */
const JOBS = 4;
/** For one process, on a loaded machine. Seconds. */
const TIMEOUT_S = 240;
/**
 * Tests that share a process, by its name: loading tap and the program takes longer than most of them. Not those that
 * count the descriptors or the memory of their process.
 */
const TOGETHER: Readonly<Record<string, RegExp>> = {
  units: /^test\/(?:api|config|portal|proxier|roundrobin|service|sinks|store|util|vectors)\//,
  tcp: /^test\/proxysocket\/tcp\/(?!limits|held-memory)/,
  sockets: /^test\/proxysocket\/(?:(?:udp|core|node)\/)?[^/]+$/,
  sources: /^test\/(?:client\/(?!memory)|kube\/(?!soak))/,
  pages: /^test\/(?:server|observe)\//,
};
/** They take longest, so they begin first. */
const LONG =
  /^(?:units|tcp|sockets|sources|pages)(?: |$)|^test\/(?:cli\/handover|demo|docs|file|sea|proxysocket)/;
/** They have commands of their own. */
const ELSEWHERE = /^test\/(?:system|deploy\/checks)\//;
/** What `test:fast` runs besides units. */
const FAST = /^test\/proxysocket\/tcp\/(?:connect|half-close|limits|reset)\./;

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
  const everything = testFiles('test').filter((file) => !ELSEWHERE.test(file));
  const quick = (file: string): boolean =>
    TOGETHER['units']?.test(file) === true || FAST.test(file);
  const files =
    asked.length > 0 ? asked.flatMap(testFiles) : fast ? everything.filter(quick) : everything;
  const run = { timeoutS: TIMEOUT_S, strict };
  const checked = runChecks(fast ? [types, lint] : [lint, types, ...others], ROOT, (result) => {
    total[result.ok ? 'passed' : 'failed'] += 1;
    print(`${result.ok ? 'ok  ' : 'FAIL'}  ${result.name} ${(result.ms / 1000).toFixed(1)} s`);
    if (!result.ok) print(result.output);
  });
  const again = fast || !hasLinuxEngine(process.platform, process.version) ? [] : WITH_LINUX;
  const processes = [
    ...grouped(files),
    ...grouped(
      again.filter((file) => files.includes(file)),
      'linux',
    ),
    ...grouped(fast ? [] : DOCUMENTED.filter((file) => files.includes(file)), 'documented'),
  ];
  const longestFirst = processes.toSorted(
    (a, b) => Number(LONG.test(b.name)) - Number(LONG.test(a.name)),
  );
  await Promise.all([checked, runTests({ ...run, processes: longestFirst, jobs: JOBS }, total)]);
  print(`\n${tallyLine(total)}`);
  return total.failed === 0;
}

/** The processes in which these files run. */
function grouped(files: readonly string[], engine?: TestProcess['engine']): TestProcess[] {
  const groups = Object.groupBy(
    files,
    (file) => Object.keys(TOGETHER).find((name) => TOGETHER[name]?.test(file)) ?? file,
  );
  return Object.entries(groups).map(([name, group = []]) =>
    engine === undefined
      ? { name, files: group }
      : { name: `${name} (${engine})`, files: group, engine },
  );
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
