/** Test files that run on the real node.exe. */
import { match } from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { globSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { DIFFERENCES } from './differences.ts';
import type { Namespace, Steps, Ended, Wine } from './support/wine.ts';

const ROOT = join(import.meta.dirname, '..', '..');

/** What differs from system to system: sockets, files, addresses, processes; and all that is Windows'. */
const SUITES = [
  'test/portal/windows/*.test.ts',
  'test/portal/interface/*.test.ts',
  'test/portal/address*.test.ts',
  'test/service/*.test.ts',
  'test/cli/service/*.test.ts',
  'test/roundrobin/*.test.ts',
  'test/proxysocket/*.test.ts',
  'test/proxysocket/tcp/*.test.ts',
  'test/proxysocket/udp/*.test.ts',
  'test/proxysocket/pool/*.test.ts',
  'test/proxier/*.test.ts',
  'test/store/*.test.ts',
  'test/file/*.test.ts',
  'test/util/*.test.ts',
  'test/admin/pipe.test.ts',
];

/** Files that are of no use here, and why. They run on Linux. */
const LEFT_OUT: Readonly<Record<string, string>> = {
  'test/util/tls-files.test.ts': 'there is no openssl here, which makes the certificates',
};

/** An address that is not on loopback, for the scripts that show differences. */
const ADDRESS = '10.96.0.99';

/** A file that hangs is abandoned. Milliseconds. */
const PATIENCE_MS = 310_000;

/** What Wine does differently, and then the test files, one after the other; `only`: these instead. */
export async function suites(
  steps: Steps,
  wine: Wine,
  namespace: Namespace,
  only: readonly string[],
): Promise<void> {
  if (only.length === 0) await differences(steps, wine, namespace);
  const all = SUITES.flatMap((pattern) => globSync(pattern, { cwd: ROOT }).sort());
  const files = only.length === 0 ? all : only;
  for (const file of files) {
    const reason = LEFT_OUT[file];
    if (reason === undefined) await steps.step(file, () => runFile(wine, file));
    else steps.say(`left out ${file}: ${reason}`);
  }
}

/**
 * Each script prints `same` on this system. When Wine does as Windows one day, tests need not be written with it in
 * mind any more.
 */
async function differences(steps: Steps, wine: Wine, namespace: Namespace): Promise<void> {
  await namespace.addAddress(ADDRESS);
  for (const { what, script, therefore } of DIFFERENCES) {
    await steps.step(what, async () => {
      const here = await promisify(execFile)(process.execPath, [join(ROOT, script)]);
      match(here.stdout, /^same/);
      const { stdout, stderr } = await runScript(wine, script);
      match(stdout, /^differs: /, stderr);
      return `${stdout.trim()}\n${therefore}`;
    });
  }
  await namespace.deleteAddress(ADDRESS);
}

/** Resolves with the tests that were skipped in it, if any were. */
async function runFile(wine: Wine, file: string): Promise<string | undefined> {
  const { code, stdout, stderr } = await runScript(wine, file);
  const planned = /^1\.\.\d+/m.test(stdout);
  const lines = stdout.split('\n');
  if (code === 0 && planned) {
    const skipped = lines.flatMap((line) => /^\s*ok \d+ - (.*) # SKIP/.exec(line)?.[1] ?? []);
    return skipped.length === 0 ? undefined : `skipped: ${skipped.join('; ')}`;
  }
  const failures = failuresIn(lines).join('\n').slice(0, 4000);
  throw new Error(`ended with ${code}\n${failures}\n${stderr.slice(-1500)}`);
}

/** What TAP says of checks that failed, each with its diagnostics: a block from `---` to `...`. */
function failuresIn(lines: readonly string[]): string[] {
  const found: string[] = [];
  let isDiagnostic = false;
  let follows = false;
  for (const line of lines) {
    const isFailure = /^\s*not ok /.test(line);
    isDiagnostic ||= follows && line.trim() === '---';
    if (isFailure || isDiagnostic) found.push(line);
    follows = isFailure;
    if (line.trim() === '...') isDiagnostic = false;
  }
  return found;
}

function runScript(wine: Wine, file: string): Promise<Ended> {
  const path = ['Z:', 'mnt', 'main', ...file.split('/')].join('\\');
  return wine.run(String.raw`Z:\kpng\node.exe`, [path], PATIENCE_MS);
}
