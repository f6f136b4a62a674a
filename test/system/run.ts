/**
 * `npm run test:system`: tests with real rules in network namespaces that the tests create.
 *
 *     npm run test:system                                  all
 *     npm run test:system -- test/system/paths.test.ts     only these
 *
 * Needs root (or CAP_NET_ADMIN and CAP_SYS_ADMIN) and the tools below, and fails without them.
 * Nothing outside the namespaces is touched; the rules of the machine are compared before and after.
 */
import { globSync } from 'node:fs';
import { join } from 'node:path';
import { systemExec } from '../../src/portal/exec.ts';
import { oneFile, print, runTests, tallyLine, type Tally } from '../runner/tap.ts';
import { isInUse, Namespaces } from '../../bench/support/namespaces.ts';
import { lack } from '../../bench/support/tools.ts';
import { PREFIX } from './support/network.ts';

const root = join(import.meta.dirname, '..', '..');

const TOOLS =
  'ip nft iptables-nft iptables-legacy ip6tables-legacy conntrack sysctl curl setpriv prlimit flock unshare nsenter ' +
  'mount ss openssl';

/** What keeps the tests from running here. */
function obstacles(): string[] {
  const missing = TOOLS.split(' ').flatMap((tool) => lack(tool) ?? []);
  if (missing.length > 0) return missing;
  try {
    const trial = new Namespaces(PREFIX);
    trial.add('try');
    trial.remove();
    return [];
  } catch (error) {
    return [`no namespace can be made, which root can: ${String(error)}`];
  }
}

const STATE = `ip netns list | sed -n /^kpng/p
nft list ruleset
iptables-legacy-save
ip6tables-legacy-save
ip -o address
sysctl net.ipv4.ip_forward net.ipv4.conf.all.route_localnet`;

/** The state of the machine that no test may change. Others may run these tests at the same time. */
async function machineState(): Promise<readonly string[]> {
  const { stdout } = await systemExec({
    file: 'sh',
    args: ['-e', '-c', STATE],
    maxOutput: 2 ** 26,
  });
  // Lifetimes, and what iptables counts and when, change by themselves.
  const text = stdout.replaceAll(/ (?:valid|preferred)_lft \S+|^# .*\n|\[\d+:\d+\]/gm, '');
  // Namespaces of tests and benchmarks that run at the same time come and go.
  return text
    .split('\n')
    .filter((line) => !isInUse(PREFIX, line) && !/^kpng(?:bench|-windows)-/.test(line));
}

async function main(files: readonly string[]): Promise<boolean> {
  const total: Tally = { passed: 0, failed: 0, skipped: 0 };
  const reasons = obstacles();
  if (reasons.length > 0) {
    print(`the system tests cannot run here:\n${reasons.join('\n')}`);
    total.failed += 1;
  } else {
    const before = await machineState();
    await runTests(
      {
        processes: (files.length > 0
          ? files
          : globSync('test/system/**/*.test.ts', { cwd: root })
        ).map(oneFile),
        // Each has a network of namespaces of its own, and mostly waits.
        jobs: 3,
        timeoutS: 900,
        // Skipping is for unit tests that need another system. Here everything has to run.
        strict: true,
      },
      total,
    );
    const after = await machineState();
    if (after.join('\n') !== before.join('\n')) {
      total.failed += 1;
      print('  FAIL  the state of the machine is not as it was before');
      for (const line of before) if (!after.includes(line)) print(`        - ${line}`);
      for (const line of after) if (!before.includes(line)) print(`        + ${line}`);
    }
  }
  print(`\n${tallyLine(total)}`);
  return total.failed === 0;
}

process.exitCode = (await main(process.argv.slice(2))) ? 0 : 1;
