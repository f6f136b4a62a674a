/** Test files that run on the real node.exe. */
import { globSync } from 'node:fs';
import { join } from 'node:path';
import type { Steps } from './support/steps.ts';
import type { Wine } from './support/wine.ts';

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
  'test/proxier/*.test.ts',
  'test/store/*.test.ts',
  'test/file/*.test.ts',
  'test/util/*.test.ts',
];

/**
 * Files that test what Wine does not do as Windows does, or what Windows does not have. Each has its
 * reason; they run on Linux.
 */
const LEFT_OUT: Readonly<Record<string, string>> = {};

export async function suites(steps: Steps, wine: Wine): Promise<void> {
  const files = SUITES.flatMap((pattern) => globSync(pattern, { cwd: ROOT }).sort());
  for (const file of files) {
    const reason = LEFT_OUT[file];
    if (reason !== undefined) {
      steps.say(`  left out: ${file}: ${reason}`);
      continue;
    }
    await steps.step(file, async () => {
      const path = ['Z:', 'mnt', 'main', ...file.split('/')].join('\\');
      const { code, stdout, stderr } = await wine.run(String.raw`Z:\kpng\node.exe`, [path]);
      const failed = stdout.split('\n').filter((line) => /^\s*not ok/.test(line));
      if (code === 0 && /^1\.\.\d+/m.test(stdout)) return;
      throw new Error(
        `ended with ${code}\n${failed.slice(0, 20).join('\n')}\n${stderr.slice(-1500)}`,
      );
    });
  }
}
