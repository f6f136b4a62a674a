import t from 'tap';
import {
  cleanUpIptables,
  IptablesBackend,
  tryIptables,
} from '../../../src/portal/iptables/backend.ts';
import { areOurs, findRules } from '../../../src/portal/iptables/script.ts';
import type { Tools } from '../../../src/portal/iptables/tools.ts';
import { rulesOf } from '../../../src/portal/iptables/translate.ts';
import { exits, FakeExec } from '../../support/fake-exec.ts';
import { FakeIptables } from '../../support/fake-iptables.ts';
import { CONFIG as DUAL, IptablesRig } from '../../support/rule-rigs.ts';
import { elementsOf, portal, update, wants } from '../../support/portals.ts';

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

t.test('packets of the canary do not have to pass the rules of all services', async (t) => {
  const key = '-p tcp -m tcp --dport 9 -d 127.200.0.1/32';
  let opened = 0;
  const rig = newRig({
    canary: () => ({
      open: async () => {
        opened += 1;
        return [{ set: 'portals-host4', key, value: '39999' }];
      },
      probe: async () => 'alive',
      close: () => undefined,
    }),
  });
  await rig.sync(many(3));
  await rig.sync(many(4));
  t.match(rig.iptables.rules('KUBE-PORTALS-HOST')[0], '127.200.0.1');
  t.equal(opened, 1);
});

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
  await rig.takeOver([wants('x/x', 'clusterIP 10.9.9.9:80')]);
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

t.test('reports the families that iptables can write, and why not the others', async (t) => {
  const fake = new FakeIptables();
  t.match(await tryIptables(fake.exec, TOOLS, [4, 6]), { families: [4, 6] });
  for (const family of [4, 6] as const) t.notMatch(fake.listing(family), /KPNG|KUBE/);
  fake.refuses = (line) => line.includes('icmp6');
  const v4 = await tryIptables(fake.exec, TOOLS, [4, 6]);
  t.strictSame(v4.families, [4]);
  t.match(v4.problems.get(6), { code: 'KPNG_PORTAL_UNSUPPORTED', message: /icmp6/ });
  fake.missing.add('ip6tables-nft');
  const missing = await tryIptables(fake.exec, TOOLS, [4, 6]);
  t.match(missing.problems.get(6), { code: 'KPNG_PORTAL_TOOL_MISSING' });
});

const CONFIG = {
  ...DUAL,
  nodePortNetworks: { 4: ['192.0.2.0/24', '198.51.100.0/24'], 6: ['::/0'] },
};

/** Chains with rules of every kind, written once, and another program's rules around them. */
async function written() {
  const fake = new FakeIptables();
  fake.run('*nat\n-A PREROUTING -j ACCEPT\nCOMMIT\n*filter\n-A INPUT -j ACCEPT\nCOMMIT\n');
  const store = new IptablesBackend(fake.exec, async () => TOOLS, 'KUBE');
  const lead = (family: 4 | 6, text: string, proxyPort: number | undefined) =>
    rulesOf(
      'd/s',
      [{ family, portal: portal(text), proxyPort }],
      proxyPort === undefined ? [] : [{ family, protocol: 'TCP', port: proxyPort }],
    );
  const ledger = elementsOf(
    ...lead(4, 'clusterIP 10.0.0.1:80', 40_001),
    ...lead(4, 'clusterIP 10.0.0.2:80', 40_002),
    ...lead(4, 'nodePort 30080', 40_003),
    ...lead(4, 'nodePort 30081', undefined),
    ...lead(4, 'clusterIP 10.0.0.3:80', undefined),
    ...lead(6, 'clusterIP fd00::1:80', 40_004),
  );
  await store.replace(CONFIG, ledger, false);
  ledger.written();
  const before = structuredClone(fake.tables(4));
  return {
    fake,
    before,
    jumpDifference: (config = CONFIG) => store.jumpDifference(config, ledger),
    /** What is there is doubted, and written again; resolves with the scripts. */
    repair: async (config = CONFIG): Promise<readonly string[]> => {
      const begin = fake.scripts.length;
      await store.replace(config, ledger, true);
      return fake.scripts.slice(begin);
    },
    change: (name: string) => {
      const rules = rulesOf(name, [{ family: 4, portal: portal(name), proxyPort: 40_009 }], []);
      update(ledger, [], rules);
      return store.change(CONFIG, ledger.changes(), ledger);
    },
  };
}

t.test('when a check finds jumps missing, the repair lists no chain', async (t) => {
  const { fake, before, jumpDifference, repair, change } = await written();
  const host = before.get('nat')?.get('KUBE-PORTALS-HOST');
  fake.run('*nat\n-F PREROUTING\nCOMMIT\n');
  t.equal(await jumpDifference(), 'jumps are missing');
  fake.commands.length = 0;
  await repair();
  t.notMatch(fake.commands.map(({ stdin }) => stdin).join(''), '-S KUBE-');
  t.equal(await jumpDifference(), undefined);
  fake.run('*nat\n-F KUBE-PORTALS-HOST\nCOMMIT\n');
  await repair();
  t.same(fake.rules('KUBE-PORTALS-HOST'), host, 'later damage is found');
  fake.run('*nat\n-F PREROUTING\nCOMMIT\n');
  await jumpDifference();
  await change('clusterIP 10.0.0.9:80');
  const changed = [...fake.rules('KUBE-PORTALS-HOST')];
  fake.run('*nat\n-F KUBE-PORTALS-HOST\nCOMMIT\n');
  await repair();
  t.same(fake.rules('KUBE-PORTALS-HOST'), changed, 'also if something was written in between');
});

t.test('a stale jump for node ports is removed', async (t) => {
  const { fake, jumpDifference, repair } = await written();
  const last = fake.rules('PREROUTING').at(-1) ?? '';
  const none = { ...CONFIG, nodePortNetworks: { 4: [], 6: [] } };
  await repair(none);
  const without = [...fake.rules('PREROUTING')];
  t.equal(await jumpDifference(none), undefined);
  fake.run(`*nat\n-A PREROUTING ${last}\nCOMMIT\n`);
  t.equal(await jumpDifference(none), 'jumps are missing');
  await repair(none);
  t.same(fake.rules('PREROUTING'), without);
});

t.test('a repair writes what is missing, and everything if nothing seems to be', async (t) => {
  const { fake, repair, change } = await written();
  await change('clusterIP 10.0.0.9:80');
  const before = structuredClone(fake.tables(4));
  fake.run('*nat\n-F KUBE-PORTALS-HOST\nCOMMIT\n');
  const [script = ''] = await repair();
  t.same([...script.matchAll(/^:(\S+) /gm)].flat(), [':KUBE-PORTALS-HOST ', 'KUBE-PORTALS-HOST']);
  t.same(fake.tables(4), before);
  const host = fake.tables(4).get('nat')?.get('KUBE-PORTALS-HOST') ?? [];
  host[0] = '-j ACCEPT';
  t.equal((await repair()).length, 2);
  t.same(fake.tables(4), before);
});

const CLEANUP = { prefix: 'KUBE', kubeProxy: false, local: new Set(['192.0.2.5']) };

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

t.test('ours are known by any of our own chains', async (t) => {
  const rig = newRig();
  await rig.sync([wants('a/a', 'clusterIP 10.0.0.1:80')]);
  const nat = rig.iptables.tables(4, 'nft').get('nat');
  const filter = rig.iptables.tables(4, 'nft').get('filter');
  for (const chains of [nat, filter]) {
    for (const name of chains?.keys() ?? []) if (name.startsWith('KPNG-')) chains?.delete(name);
  }
  t.equal(areOurs('KUBE', findRules('KUBE', rig.iptables.listing(4, 'nft'))), true);
  filter?.clear();
  t.equal(areOurs('KUBE', findRules('KUBE', rig.iptables.listing(4, 'nft'))), false);
});

t.test('reports why it cannot, and refuses invalid names', async (t) => {
  const iptables = new FakeIptables();
  const { exec } = iptables;
  iptables.run('*nat\n:KUBE-PORTALS-HOST - [0:0]\nCOMMIT\n', 4, 'legacy');
  iptables.broken = { fails: 'exit', stderr: 'Permission denied (you must be root)\n' };
  await t.rejects(cleanUpIptables(exec, CLEANUP), { code: 'KPNG_PORTAL_PERMISSION' });
  iptables.broken = undefined;
  await t.rejects(cleanUpIptables(exec, { ...CLEANUP, prefix: 'a b' }), { code: 'KPNG_USAGE' });
  for (const name of ['iptables', 'iptables-nft', 'ip6tables-legacy']) iptables.missing.add(name);
  t.match(await cleanUpIptables(exec, { ...CLEANUP, kubeProxy: true }), { kubeProxyStays: false });
  t.notMatch(iptables.listing(4, 'legacy'), /KUBE-PORTALS/, 'with what there is');
});
