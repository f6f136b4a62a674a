import t from 'tap';
import { cleanUpIptables } from '../../../src/portal/iptables/backend.ts';
import { areOurs, findRules } from '../../../src/portal/iptables/script.ts';
import { FakeIptables } from '../../support/fake-iptables.ts';
import { IptablesRig } from '../../support/rule-rigs.ts';
import { wants } from '../../support/portals.ts';

const OPTIONS = { prefix: 'KUBE', kubeProxy: false, local: new Set(['192.0.2.5']) };

t.test('chains that another proxy of ours has signed are not taken for kube-proxy’s', async (t) => {
  const rig = new IptablesRig();
  t.teardown(() => rig.portal.close());
  await rig.sync([wants('a/a', 'clusterIP 10.0.0.1:80')]);
  const before = rig.iptables.listing(4, 'nft');
  const outcome = await cleanUpIptables(rig.exec, { ...OPTIONS, prefix: 'MINE', kubeProxy: true });
  t.equal(outcome.kubeProxyStays, false);
  t.equal(rig.iptables.listing(4, 'nft'), before);
  await cleanUpIptables(rig.exec, OPTIONS);
  for (const family of [4, 6] as const)
    t.notMatch(rig.iptables.listing(family, 'nft'), /KUBE|KPNG/);
});

t.test('ours are known by any of our own chains', async (t) => {
  const rig = new IptablesRig();
  t.teardown(() => rig.portal.close());
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
  await t.rejects(cleanUpIptables(exec, OPTIONS), { code: 'KPNG_PORTAL_PERMISSION' });
  iptables.broken = undefined;
  await t.rejects(cleanUpIptables(exec, { ...OPTIONS, prefix: 'a b' }), { code: 'KPNG_USAGE' });
  for (const name of ['iptables', 'iptables-nft', 'ip6tables-legacy']) iptables.missing.add(name);
  t.match(await cleanUpIptables(exec, { ...OPTIONS, kubeProxy: true }), { kubeProxyStays: false });
  t.notMatch(iptables.listing(4, 'legacy'), /KUBE-PORTALS/, 'with what there is');
});
