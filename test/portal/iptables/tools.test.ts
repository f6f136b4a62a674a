import t from 'tap';
import { ExecError, type ExecFailure } from '../../../src/portal/exec.ts';
import { findTools, iptablesFailure, waitFlags } from '../../../src/portal/iptables/tools.ts';
import { FakeExec } from '../../support/fake-exec.ts';
import { FakeIptables } from '../../support/fake-iptables.ts';

t.test('P6: how to wait for the lock depends on the version', (t) => {
  const flags: Record<string, string> = {
    '1.4.11': '',
    '1.4.20': '',
    '1.6.1': '',
    '1.6.2': '-w 5 -W 100000',
    '1.8.8': '-w 5 -W 100000',
    '1.8.9': '-w 5',
    '1.8.10': '-w 5',
    '1.10': '-w 5',
    '2.0.0': '-w 5',
  };
  for (const [version, expected] of Object.entries(flags)) {
    t.equal(waitFlags(version).join(' '), expected, version);
  }
  t.end();
});

const KUBELET = '*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n';
const FIREWALL = '*filter\n-A INPUT -p tcp --dport 22 -j ACCEPT\nCOMMIT\n';

/** A host with rules of both flavours, and no table of others. */
function host(nft: string, legacy: string, plain: 'nft' | 'legacy' = 'nft'): FakeIptables {
  const fake = new FakeIptables();
  fake.plain = plain;
  fake.run(nft, 4, 'nft');
  fake.run(legacy, 6, 'legacy');
  return fake;
}

t.test(
  'auto takes the flavour that Kubernetes uses, or else the one with more rules',
  async (t) => {
    const cases: [FakeIptables, string, RegExp][] = [
      [host('', ''), 'nft', /on the PATH/],
      [host('', '', 'legacy'), 'legacy', /on the PATH/],
      [host(KUBELET, FIREWALL, 'legacy'), 'nft', /Kubernetes/],
      [host(FIREWALL, KUBELET), 'legacy', /Kubernetes/],
      [host(FIREWALL, '', 'legacy'), 'nft', /more rules/],
      [host('', FIREWALL), 'legacy', /more rules/],
      [host(KUBELET + FIREWALL, KUBELET, 'legacy'), 'nft', /more rules/],
    ];
    for (const [fake, flavor, reason] of cases) {
      t.match(await findTools(fake.exec, 'auto'), { flavor, name: `iptables-${flavor}`, reason });
      const read = fake.commands.map(({ file, args }) => [file, ...args].join(' '));
      for (const line of read) t.match(line, /(?:--version|-save)$/, 'no table is made by looking');
    }
  },
);

t.test('uses what is installed', async (t) => {
  const fake = new FakeIptables();
  fake.missing.add('iptables-legacy');
  t.match(await findTools(fake.exec, 'auto'), { name: 'iptables', flavor: 'nft' });
  await t.rejects(findTools(fake.exec, 'legacy'), {
    code: 'KPNG_PORTAL_TOOL_MISSING',
    message: /--iptables-flavor legacy: there is no iptables-legacy on the PATH/,
  });
  fake.missing.add('iptables-nft');
  t.match(await findTools(fake.exec, 'nft'), { name: 'iptables', flavor: 'nft' }, 'by its version');
  fake.plain = 'legacy';
  t.match(await findTools(fake.exec, 'legacy'), { name: 'iptables', flavor: 'legacy' });
  await t.rejects(findTools(fake.exec, 'nft'), { code: 'KPNG_PORTAL_TOOL_MISSING' });
  fake.missing.add('iptables');
  await t.rejects(findTools(fake.exec, 'auto'), {
    code: 'KPNG_PORTAL_TOOL_MISSING',
    message: /no iptables on the PATH; install the package iptables/,
  });
});

t.test('an iptables without flavours is legacy', async (t) => {
  const old = new FakeExec(({ file, args }) =>
    file === 'iptables' && args[0] === '--version'
      ? { stdout: 'iptables v1.6.1\n' }
      : { fails: 'missing' },
  );
  t.match(await findTools(old.exec, 'auto'), { flavor: 'legacy', version: '1.6.1' });
});

t.test('reports a program that may not be run', async (t) => {
  const fake = new FakeExec(() => ({ fails: 'not-allowed' }));
  await t.rejects(findTools(fake.exec, 'auto'), { code: 'KPNG_PORTAL_PERMISSION' });
});

t.test('rules that cannot be listed count for nothing', async (t) => {
  const fake = new FakeIptables();
  fake.broken = { fails: 'output' };
  t.match(await findTools(fake.exec, 'auto'), { flavor: 'nft', reason: /on the PATH/ });
});

const RESTORE = { file: 'iptables-nft-restore', args: ['--noflush', '-w', '5'] };

function failing(failure: ExecFailure, stderr = ''): ExecError {
  return new ExecError(failure, RESTORE, { stderr, exitCode: 1 });
}

/** What the programs of iptables 1.8.9 print, of both flavours. */
const TEXTS: readonly [string, string, 'host' | 'content', RegExp][] = [
  [
    'iptables-nft-restore v1.8.9 (nf_tables): Could not fetch rule set generation id: Permission denied (you must be root)\n',
    'KPNG_PORTAL_PERMISSION',
    'host',
    /^doing: iptables-nft-restore says ".*Permission denied \(you must be root\)"; give .*CAP_NET_ADMIN/,
  ],
  [
    "Fatal: can't open lock file /run/xtables.lock: Permission denied\n",
    'KPNG_PORTAL_PERMISSION',
    'host',
    /lock file/,
  ],
  [
    "Fatal: can't open lock file /run/xtables.lock: Read-only file system\n",
    'KPNG_PORTAL_FAILED',
    'host',
    /mount \/run\/xtables\.lock of the host/,
  ],
  [
    "Can't lock /run/xtables.lock: Resource temporarily unavailable\nAnother app is currently holding the xtables lock. Stopped waiting after 5s.\n",
    'KPNG_PORTAL_LOCKED',
    'host',
    /another program is changing the rules/,
  ],
  [
    "iptables-restore v1.8.9 (legacy): iptables-restore: unable to initialize table 'nat'\nError occurred at line: 1\nTry `iptables-restore -h' or 'iptables-restore --help' for more information.\n",
    'KPNG_PORTAL_UNSUPPORTED',
    'host',
    /says ".*unable to initialize table 'nat'" about "\*nat"; .*--iptables-flavor/,
  ],
  [
    "iptables v1.8.9 (legacy): can't initialize iptables table `nat': Table does not exist (do you need to insmod?)\nPerhaps iptables or your kernel needs to be upgraded.\n",
    'KPNG_PORTAL_UNSUPPORTED',
    'host',
    /Table does not exist/,
  ],
  [
    'iptables-nft-restore v1.8.9 (nf_tables): \nline 1: TABLE_ADD failed (Operation not supported): table nat\n',
    'KPNG_PORTAL_UNSUPPORTED',
    'host',
    /TABLE_ADD failed \(Operation not supported\)/,
  ],
  [
    "# Warning: iptables-legacy tables present, use iptables-legacy-restore to see them\niptables-nft-restore v1.8.9 (nf_tables): Couldn't load match `conntrack':No such file or directory\n\nError occurred at line: 2\n",
    'KPNG_PORTAL_UNSUPPORTED',
    'content',
    /says "iptables-nft-restore v1\.8\.9 .*conntrack.*" about "-A KUBE-X -j RETURN"; iptables 1\.6\.2/,
  ],
  [
    'iptables-nft-restore v1.8.9 (nf_tables): \nline 2: RULE_APPEND failed (Invalid argument): rule in chain KUBE-X\n',
    'KPNG_PORTAL_FAILED',
    'content',
    /says "line 2: RULE_APPEND failed .*" about "-A KUBE-X -j RETURN"$/,
  ],
  [
    'Ignoring deprecated --wait-interval option.\niptables-restore: line 2 failed\n',
    'KPNG_PORTAL_FAILED',
    'content',
    /says "iptables-restore: line 2 failed" about "-A KUBE-X/,
  ],
  ['', 'KPNG_PORTAL_FAILED', 'content', /says ""$/],
];

t.test('translates iptables’ messages, with the subject and advice', (t) => {
  for (const [stderr, code, blame, message] of TEXTS) {
    const stdin = '*nat\n-A KUBE-X -j RETURN\nCOMMIT\n';
    const found = iptablesFailure(failing('exit', stderr), 'doing', stdin);
    t.match(found, { blame, code, message }, stderr);
  }
  t.end();
});
