/** Test files that run on the real node.exe. */
import { globSync } from 'node:fs';
import { join } from 'node:path';
import type { Steps, Ended, Wine } from './support/wine.ts';

/** Where run.ts puts the real node.exe. */
const NODE = String.raw`Z:\kpng\node.exe`;
const ROOT = join(import.meta.dirname, '..', '..');

/** What differs from system to system: sockets, files, addresses, processes; and all that is Windows'. */
const SUITES = [
  'test/portal/windows/*.test.ts',
  'test/portal/interface/*.test.ts',
  'test/portal/address*.test.ts',
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
  'test/admin/socket.test.ts',
];

/** A file that hangs is abandoned. Milliseconds. */
const PATIENCE_MS = 610_000;

/** Runs the test files, two at a time; `only`: these instead. */
export async function suites(steps: Steps, wine: Wine, only: readonly string[]): Promise<void> {
  // There is no openssl here, which makes the certificates.
  const exclude = ['test/util/tls-files.test.ts'];
  const queue = only.length > 0 ? [...only] : globSync(SUITES, { cwd: ROOT, exclude }).sort();
  const lane = async (): Promise<void> => {
    for (let file = queue.shift(); file !== undefined; file = queue.shift()) {
      const path = file;
      await steps.step(path, () => runFile(wine, path));
    }
  };
  await Promise.all([lane(), lane()]);
}

/** Resolves with the tests that were skipped in it, if any were. */
async function runFile(wine: Wine, file: string): Promise<string | undefined> {
  const { code, stdout, stderr } = await runScript(wine, file);
  const planned = /^1\.\.\d+/m.test(stdout);
  if (code === 0 && planned) {
    const skipped = [...stdout.matchAll(/^ *ok \d+ - (.*) # SKIP/gm)].map(([, name]) => name);
    return skipped.length === 0 ? undefined : `skipped: ${skipped.join('; ')}`;
  }
  // Each with its diagnostics, from `---` to `...`.
  const failures = stdout.match(/^ *not ok .*(?:\r?\n *---[^]*?\n *\.\.\.$)?/gm) ?? [];
  throw new Error(
    `ended with ${code}\n${failures.join('\n').slice(0, 4000)}\n${stderr.slice(-1500)}`,
  );
}

/** Runs a script of this project with the node.exe that run.ts has put there. */
export function runScript(wine: Wine, file: string, ...args: string[]): Promise<Ended> {
  const path = ['Z:', 'mnt', 'main', ...file.split('/')].join('\\');
  return wine.run(NODE, [path, ...args], PATIENCE_MS);
}
