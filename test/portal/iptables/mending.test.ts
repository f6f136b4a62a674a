import t from 'tap';
import { IptablesBackend } from '../../../src/portal/iptables/backend.ts';
import { rulesOf } from '../../../src/portal/iptables/translate.ts';
import type { RuleConfig } from '../../../src/portal/rules/backend.ts';
import { elementsOf, portal, update } from '../../support/portals.ts';
import { FakeIptables } from '../../support/fake-iptables.ts';

const CONFIG: RuleConfig = {
  owner: '0123456789ab',
  families: [4, 6],
  targets: { 4: '192.0.2.5', 6: '2001:db8::5' },
  nodePortNetworks: { 4: ['192.0.2.0/24', '198.51.100.0/24'], 6: ['::/0'] },
};

/** Chains with rules of every kind, written once, and another program's rules around them. */
async function written() {
  const fake = new FakeIptables();
  fake.run('*nat\n-A PREROUTING -j ACCEPT\nCOMMIT\n*filter\n-A INPUT -j ACCEPT\nCOMMIT\n');
  const tools = { name: 'iptables-nft', flavor: 'nft', version: '1.8.9' } as const;
  const store = new IptablesBackend(fake.exec, async () => tools, 'KUBE');
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
