import t from 'tap';
import { cleanUpIptables, tryIptables } from '../../../src/portal/iptables/backend.ts';
import type { Tools } from '../../../src/portal/iptables/tools.ts';
import { exits, FakeExec } from '../../support/fake-exec.ts';
import { FakeIptables } from '../../support/fake-iptables.ts';
import { IptablesRig } from '../../support/rule-rigs.ts';
import { wants } from '../../support/portals.ts';

const TOOLS: Tools = { name: 'iptables-nft', flavor: 'nft', version: '1.8.9' };

function many(count: number) {
  return Array.from({ length: count }, (_, n) =>
    wants(`d/s${n}`, `clusterIP 10.${n >> 8}.${n & 255}.1:80`),
  );
}

function newRig(...args: ConstructorParameters<typeof IptablesRig>): IptablesRig {
  const rig = new IptablesRig(...args);
  t.teardown(() => rig.portal.close());
  return rig;
}

t.test('many removals are written as a whole, but not if the chains are taken', async (t) => {
  const rig = newRig();
  const names = many(400).map(({ servicePort }) => servicePort);
  await rig.sync(many(400));
  await rig.sync([], names.slice(0, 1));
  t.match(rig.iptables.scripts.at(-1), /^-D KUBE-PORTALS-HOST/m, 'one of them is not');
  const { length } = rig.iptables.scripts;
  await rig.sync([], names.slice(1, 300));
  const script = rig.iptables.scripts[length];
  t.notMatch(script, /^-D KUBE/m);
  t.match(script, /^:KUBE-PORTALS-HOST - /m);
  t.notOk(rig.redirects('10.0.7.1'));
  t.ok(rig.redirects('10.1.100.1'));
  await rig.sync(many(400));
  await newRig({ exec: rig.exec }).sync([wants('x/x', 'clusterIP 10.9.9.9:80')]);
  await t.rejects(rig.sync([], names), { code: 'KPNG_PORTAL_TAKEN' });
  t.ok(rig.redirects('10.9.9.9'));
});

t.test('a family that fails does not keep the other from being written', async (t) => {
  const rig = newRig();
  rig.iptables.refuses = (line) => line.includes('icmp6');
  const services = [
    wants('d/v4', 'clusterIP 10.0.0.1:80'),
    wants('d/dns', 'clusterIP fd00::1:53/UDP'),
  ];
  await rig.sync(services);
  t.ok(rig.redirects('10.0.0.1'));
  t.notOk(rig.redirects('fd00::1'));
  t.match(rig.portal.problems(), [{ servicePort: 'd/dns' }]);
  t.notMatch(rig.iptables.listing(4, 'nft') + rig.iptables.listing(6, 'nft'), /TRIAL/);
});

t.test('the legacy flavour reports why a table is missing only on a second call', async (t) => {
  const fake = new FakeExec(({ args }) =>
    args.includes('-S')
      ? exits("can't initialize iptables table `nat': Permission denied (you must be root)\n", 3)
      : exits("iptables-restore: unable to initialize table 'nat'\nError occurred at line: 1\n", 2),
  );
  const tools: Tools = { name: 'iptables-legacy', flavor: 'legacy', version: '1.8.9' };
  const usable = await tryIptables(fake.exec, tools, [4]);
  t.strictSame(usable.families, []);
  t.match(usable.problems.get(4), { code: 'KPNG_PORTAL_PERMISSION', message: /you must be root/ });
});

t.test('a family that iptables cannot write is reported', async (t) => {
  const fake = new FakeIptables();
  fake.refuses = (line) => line.includes('icmp6');
  const { families, problems } = await tryIptables(fake.exec, TOOLS, [4, 6]);
  t.strictSame(families, [4]);
  t.match(problems.get(6), { code: 'KPNG_PORTAL_UNSUPPORTED', message: /icmp6/ });
});

t.test('damage to any chain or jump is found and repaired', async (t) => {
  const rig = newRig({ nodePortAddresses: ['primary', '198.51.100.0/24'] });
  const { iptables } = rig;
  iptables.run('*nat\n-A PREROUTING -j ACCEPT\nCOMMIT\n*filter\n-A INPUT -j ACCEPT\nCOMMIT\n');
  await rig.sync([...many(3), wants('d/node', 'nodePort 30080'), wants('d/none')]);
  const before = structuredClone(iptables.tables());
  const last = iptables.rules('PREROUTING').at(-1) ?? '';
  for (const damage of [
    '*nat\n-F OUTPUT',
    '*filter\n-F FORWARD',
    `*nat\n-D PREROUTING ${last}`,
    `*nat\n-A PREROUTING ${last.replace('198.51.100.0', '203.0.113.0')}`,
    '*nat\n-F OUTPUT\n-F KUBE-PORTALS-HOST',
    '*nat\n-F KUBE-PORTALS-HOST',
  ]) {
    // A check that finds nothing: many repairs in a row become rare.
    const { length } = iptables.scripts;
    await rig.look(5000);
    t.equal(iptables.scripts.length, length, 'nothing is written while nothing differs');
    iptables.run(`${damage}\nCOMMIT\n`);
    await rig.look(5000);
    t.same(iptables.tables(), before, damage);
  }
  iptables.tables().clear();
  await rig.look(5000);
  t.ok(rig.redirects('10.0.0.1'), 'also where everything has gone');
});

const CLEANUP = { prefix: 'KUBE', kubeProxy: false };

t.test('chains that another proxy of ours has signed are not taken for kube-proxy’s', async (t) => {
  const rig = newRig();
  await rig.sync([wants('a/a', 'clusterIP 10.0.0.1:80')]);
  const before = rig.iptables.listing(4, 'nft');
  const outcome = await cleanUpIptables(rig.exec, { ...CLEANUP, prefix: 'MINE', kubeProxy: true });
  t.equal(outcome.kubeProxyStays, false);
  t.equal(rig.iptables.listing(4, 'nft'), before);
  await cleanUpIptables(rig.exec, CLEANUP);
  for (const family of [4, 6] as const)
    t.notMatch(rig.iptables.listing(family, 'nft'), /KUBE|KPNG/);
});

t.test('the UDP flows of removed rules are looked for, each once', async (t) => {
  const rig = newRig();
  await rig.sync([
    wants('d/dns', 'clusterIP 10.0.0.53:53/UDP', 'nodePort 30053/UDP'),
    wants('d/web', 'clusterIP 10.0.0.1:80'),
  ]);
  const { length } = rig.iptables.lines;
  await cleanUpIptables(rig.exec, CLEANUP);
  const listed = rig.iptables.lines.slice(length).filter((line) => line.includes('conntrack -L'));
  t.strictSame(listed, [
    'conntrack -L -f ipv4 -p udp --orig-port-dst 53 --orig-dst 10.0.0.53',
    'conntrack -L -f ipv4 -p udp --orig-port-dst 30053',
    'conntrack -L -f ipv6 -p udp --orig-port-dst 30053',
  ]);
});

t.test('cleans up with the programs that there are', async (t) => {
  const iptables = new FakeIptables();
  iptables.run('*nat\n:KUBE-PORTALS-HOST - [0:0]\nCOMMIT\n', 4, 'legacy');
  for (const name of ['iptables', 'iptables-nft', 'ip6tables-legacy']) iptables.missing.add(name);
  await cleanUpIptables(iptables.exec, { ...CLEANUP, kubeProxy: true });
  t.notMatch(iptables.listing(4, 'legacy'), /KUBE-PORTALS/);
});
