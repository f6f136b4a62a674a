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

/** Files that are of no use here, and why. They run on Linux. */
const LEFT_OUT: Readonly<Record<string, string>> = {
  'test/file/source-model.test.ts':
    'replaces files in a way that fails and hangs under Wine; an open question',
  'test/util/tls-files.test.ts': 'makes certificates with the openssl of Linux',
  'test/proxysocket/tcp/limits.test.ts':
    'limits the descriptors of a process with a shell of Linux',
};

interface Known {
  readonly why: string;
  /** How the names of the tests begin. */
  readonly tests: readonly string[];
}

const LINKS = 'symbolic links are not those of Windows here';
const OPEN = 'fails under Wine; whether Windows does the same is an open question';

/** Tests that are known to fail here. Any other failure is one. */
const KNOWN: Readonly<Record<string, Known>> = {
  'test/proxysocket/kernel-port.test.ts': {
    why: 'the drive Z: of Wine has /proc, which no Windows has',
    tests: ['reads the range of the kernel'],
  },
  'test/util/socket-holder.test.ts': {
    why: 'reads the tables of Linux',
    tests: ['reads the addresses of the tables'],
  },
  'test/proxysocket/tcp/back-pressure.test.ts': {
    why: OPEN,
    tests: ['a client that resets while its endpoint takes nothing'],
  },
  'test/proxysocket/tcp/connect.test.ts': {
    why: OPEN,
    tests: ['handles: many clients wait', 'documented: many clients wait'],
  },
  'test/proxysocket/tcp/half-close.test.ts': {
    why: OPEN,
    tests: ['a reader that is slow, but reads'],
  },
  'test/proxysocket/tcp/leaks.test.ts': {
    why: OPEN,
    tests: [
      'handles: 2000 connections',
      'documented: 2000 connections',
      'half-open clients that send nothing',
    ],
  },
  'test/proxysocket/tcp/lost-endpoint.test.ts': {
    why: OPEN,
    tests: [
      'handles: an endpoint killed with clients in its backlog',
      'handles: destroying the engine while another endpoint',
      'documented: an endpoint killed with clients in its backlog',
      'documented: destroying the engine while another endpoint',
    ],
  },
  'test/proxysocket/tcp/reset.test.ts': { why: OPEN, tests: ['resetSocket'] },
  'test/file/watch-directories.test.ts': {
    why: `${LINKS}; ${OPEN}`,
    tests: [
      'a ConfigMap volume',
      'links upwards',
      'something is missing: where it would appear',
      'a circle of links ends',
    ],
  },
  'test/file/watch.test.ts': {
    why: `${LINKS}; ${OPEN}`,
    tests: ['a ConfigMap volume', 'a chain of links'],
  },
  'test/proxysocket/udp/endpoints.test.ts': {
    why: OPEN,
    tests: ['an endpoint that cannot even be connected'],
  },
};

/** A file that hangs is given up. Milliseconds. */
const PATIENCE_MS = 120_000;

/** Runs the test files, one after the other; `only`: these instead. */
export async function suites(steps: Steps, wine: Wine, only: readonly string[]): Promise<void> {
  const all = SUITES.flatMap((pattern) => globSync(pattern, { cwd: ROOT }).sort());
  const files = only.length === 0 ? all : only;
  for (const file of files) {
    const reason = LEFT_OUT[file];
    if (reason === undefined) await steps.step(file, () => runFile(wine, file));
    else steps.say(`left out ${file}: ${reason}`);
  }
}

/** Resolves with what is known to fail in it, if anything does. Rejects when anything else does. */
async function runFile(wine: Wine, file: string): Promise<string | undefined> {
  const path = ['Z:', 'mnt', 'main', ...file.split('/')].join('\\');
  const ended = await wine.run(String.raw`Z:\kpng\node.exe`, [path], PATIENCE_MS);
  const { code, stdout, stderr } = ended;
  const planned = /^1\.\.\d+/m.test(stdout);
  if (code === 0 && planned) return undefined;
  const failed = stdout.split('\n').flatMap((line) => /^not ok \d+ - (.*)/.exec(line)?.[1] ?? []);
  const known = KNOWN[file];
  const isKnown = (name: string): boolean =>
    known?.tests.some((test) => name.startsWith(test)) === true;
  if (known !== undefined && planned && failed.length > 0 && failed.every(isKnown)) {
    return `${failed.length} of its tests: ${known.why}`;
  }
  throw new Error(`ended with ${code}\n${failed.join('\n')}\n${stderr.slice(-1500)}`);
}
