import t from 'tap';
import { findTools, waitFlags } from '../../../src/portal/iptables/tools.ts';
import { FakeExec } from '../../support/fake-exec.ts';
import { FakeIptables } from '../../support/fake-iptables.ts';

t.test('P6: how to wait for the lock depends on the version', (t) => {
  for (const [versions, flags] of [
    ['1.6.2 1.8.8', '-w 5 -W 100000'],
    ['1.8.9 1.8.10 1.10 2.0.0', '-w 5'],
  ] as const) {
    for (const version of versions.split(' '))
      t.equal(waitFlags(version).join(' '), flags, version);
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

t.test('auto takes the flavour of Kubernetes, or that with more rules', async (t) => {
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
});

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
  const old = new FakeExec(({ file }) =>
    file === 'iptables' ? { stdout: 'iptables v1.6.1\n' } : { fails: 'missing' },
  );
  t.match(await findTools(old.exec, 'auto'), { flavor: 'legacy', version: '1.6.1' });
});

t.test('without permission to run or to list', async (t) => {
  const refusing = new FakeExec(() => ({ fails: 'not-allowed' }));
  await t.rejects(findTools(refusing.exec, 'auto'), { code: 'KPNG_PORTAL_PERMISSION' });
  const fake = new FakeIptables();
  fake.broken = { fails: 'output' };
  t.match(await findTools(fake.exec, 'auto'), { flavor: 'nft', reason: /on the PATH/ });
});
