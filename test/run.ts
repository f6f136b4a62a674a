/**
 * `npm test`: format, lint, types and generated code, then the tests, those of sockets once more
 * against the `linux` engine, where there is one, and those of TCP with only what Node documents.
 *
 *     npm test                     everything
 *     npm test -- test/client      the checks, and only these tests
 *     npm run test:fast            types, lint, units, and the relay contract with one engine
 *
 * Ends with one plain line, `N passed, N failed, N skipped`; each check counts as one. With CI=true a test that is
 * skipped although it could run here is a failure.
 */
import { globSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { HAS_LINUX_ENGINE, runChecks, toolScript, type Check } from './runner/check.ts';
import { print, runTests, tallyLine, type Tally, type TestProcess } from './runner/tap.ts';

const ROOT = join(import.meta.dirname, '..');
/** At a time; many of them mostly wait. */
const JOBS = 4;
/** For one process, on a loaded machine. Seconds. */
const TIMEOUT_S = 600;
/**
 * Tests that share a process, by its name: loading tap and the program takes longer than most of them. Not those that
 * count the descriptors or the memory of their process.
 */
const TOGETHER: Readonly<Record<string, RegExp>> = {
  units: /^test\/(?:api|config|portal|proxier|roundrobin|cli\/service|sinks|store|util|vectors)\//,
  tcp: /^test\/proxysocket\/tcp\/(?!limits|held-memory)/,
  sockets: /^test\/proxysocket\/(?:(?:udp|core|node)\/)?[^/]+$/,
  sources: /^test\/(?:client\/(?!memory)|kube\/)/,
  pages: /^test\/(?:server|observe)\//,
};
/** They take longest, so they begin first. */
const LONG =
  /^(?:units|tcp|sockets|sources|pages)(?: |$)|^test\/(?:cli\/handover|demo|docs|file|sea|proxysocket)/;
/** They have commands of their own. */
const ELSEWHERE = /^test\/(?:system|deploy\/checks)\//;
/** What `test:fast` runs besides units. */
const FAST = /^test\/proxysocket\/tcp\/(?:limits|relay)\./;
/** Test files that run once more with only what Node documents; see test/support/engine-under-test.ts. */
const DOCUMENTED = /^test\/proxysocket\/(?:engine\.|tcp\/(?!connection|held-memory))/;
/** And those that run once more against the `linux` engine. */
const WITH_LINUX =
  /^test\/proxysocket\/(?:udp\/|tcp\/(?!connection|held-memory)|(?:engine|new-process|inspect)\.)/;

const check = (name: string, script: string, ...args: string[]): Check => ({ name, script, args });
const types = check('types', toolScript(ROOT, 'typescript', 'tsc'), '--noEmit');
const lint = check('lint', toolScript(ROOT, 'oxlint'), '--type-aware', '--deny-warnings');
const others: readonly Check[] = [
  check('format', toolScript(ROOT, 'prettier'), '--check', '--log-level', 'warn', '.'),
  check('prose', 'tools/prose/lint.ts'),
  check('generated', 'tools/generate/main.ts', '--check'),
];

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
  const again = (pattern: RegExp): string[] => files.filter((file) => !fast && pattern.test(file));
  const processes = [
    ...grouped(files),
    ...grouped(HAS_LINUX_ENGINE ? again(WITH_LINUX) : [], 'linux'),
    ...grouped(again(DOCUMENTED), 'documented'),
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
