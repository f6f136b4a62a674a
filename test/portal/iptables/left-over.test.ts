import t from 'tap';
import type { Command } from '../../../src/portal/exec.ts';
import { areOurs, findRules, ownersOf } from '../../../src/portal/iptables/listing.ts';
import { cleanUpIptables } from '../../../src/portal/iptables/left-over.ts';
import { FakeIptables } from '../../support/fake-iptables.ts';
import { IptablesRig } from '../../support/iptables-rig.ts';
import { wants } from '../../support/portals.ts';

/** As kube-proxy's userspace mode leaves it, with rules of others between. */
const NAT = `*nat
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:KUBE-PORTALS-CONTAINER - [0:0]
:KUBE-PORTALS-HOST - [0:0]
:KUBE-NODEPORT-CONTAINER - [0:0]
:KUBE-NODEPORT-HOST - [0:0]
:KUBE-SERVICES - [0:0]
-A PREROUTING -m comment --comment "handle ClusterIPs; NOTE: this must be before the NodePort rules" -j KUBE-PORTALS-CONTAINER
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A PREROUTING -m addrtype --dst-type LOCAL -m comment --comment "handle service NodePorts; NOTE: this must be the last rule in the chain" -j KUBE-NODEPORT-CONTAINER
-A OUTPUT -m comment --comment "handle ClusterIPs; NOTE: this must be before the NodePort rules" -j KUBE-PORTALS-HOST
-A OUTPUT -m addrtype --dst-type LOCAL -m comment --comment "handle service NodePorts; NOTE: this must be the last rule in the chain" -j KUBE-NODEPORT-HOST
-A KUBE-PORTALS-CONTAINER -d 10.0.0.53/32 -p udp -m comment --comment "kube-system/dns:dns" -m udp --dport 53 -j REDIRECT --to-ports 41000
-A KUBE-PORTALS-HOST -d 10.0.0.53/32 -p udp -m comment --comment "kube-system/dns:dns" -m udp --dport 53 -j DNAT --to-destination 192.0.2.5:41000
-A KUBE-PORTALS-HOST -d 10.0.0.10/32 -p tcp -m comment --comment "default/web:http" -m tcp --dport 80 -j DNAT --to-destination 192.0.2.5:41234
-A KUBE-NODEPORT-CONTAINER -p udp -m comment --comment "kube-system/dns:dns" -m udp --dport 30053 -j REDIRECT --to-ports 41000
COMMIT
`;
const FILTER = `*filter
:INPUT ACCEPT [0:0]
:KUBE-NODEPORT-NON-LOCAL - [0:0]
-A INPUT -m comment --comment "Ensure that non-local NodePort traffic can flow" -j KUBE-NODEPORT-NON-LOCAL
-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
-A KUBE-NODEPORT-NON-LOCAL -p tcp -m comment --comment "default/web:http" -m tcp --dport 41234 -m state --state NEW -j ACCEPT
COMMIT
`;

const OPTIONS = { prefix: 'KUBE', kubeProxy: false, local: new Set(['192.0.2.5']) };

/** A host with what kube-proxy has left, whose conntrack remembers flows. */
function host(...scripts: string[]) {
  const iptables = new FakeIptables();
  for (const script of scripts) iptables.run(script, 4, 'legacy');
  const forgotten: string[] = [];
  const exec = async (command: Command) => {
    if (command.file !== 'conntrack') return iptables.exec(command);
    const line = command.args.join(' ');
    if (line.startsWith('-L -f ipv4')) return { stdout: FLOWS, stderr: '' };
    const lines = line.startsWith('-D') ? [line] : (command.stdin ?? '').trim().split('\n');
    forgotten.push(...lines.filter((each) => each.startsWith('-D')));
    return { stdout: '', stderr: '' };
  };
  return { iptables, exec, forgotten };
}

const flow = (to: string, port: number) =>
  `udp 17 29 src=192.0.2.9 dst=${to} sport=4000 dport=${port} src=192.0.2.5 dst=192.0.2.9 sport=41000 dport=4000\n`;
const FLOWS = flow('10.0.0.53', 53) + flow('192.0.2.5', 30_053) + flow('10.0.0.99', 53);

t.test('kube-proxy’s chains are told from ours, though they have the same names', async (t) => {
  const theirs = findRules('KUBE', NAT + FILTER);
  t.equal(areOurs('KUBE', theirs), false);
  t.equal(theirs.nat.jumps.length, 4);
  t.strictSame(theirs.filter.chains, ['KUBE-NODEPORT-NON-LOCAL']);
  const rig = new IptablesRig();
  t.teardown(() => rig.portal.close());
  await rig.sync([wants('a/a', 'clusterIP 10.0.0.1:80')]);
  const ours = findRules('KUBE', rig.iptables.listing(4, 'nft'));
  t.equal(areOurs('KUBE', ours), true);
  t.equal(ownersOf(ours).length, 1);
  t.equal(ours.nat.jumps.length, 4);
  t.equal(areOurs('KUBE', findRules('KUBE', '')), false);
});

t.test('what kube-proxy has left goes when it is asked for, and the flows with it', async (t) => {
  const { iptables, exec, forgotten } = host(NAT, FILTER);
  const before = iptables.listing(4, 'legacy');
  t.match(await cleanUpIptables(exec, OPTIONS), { kubeProxyStays: true, flowsStay: undefined });
  t.equal(iptables.listing(4, 'legacy'), before);
  t.strictSame(forgotten, []);
  const outcome = await cleanUpIptables(exec, { ...OPTIONS, kubeProxy: true });
  t.match(outcome, { kubeProxyStays: false, flowsStay: undefined });
  const after = iptables.listing(4, 'legacy');
  t.notMatch(after, /KUBE-(?:PORTALS|NODEPORT)/);
  t.match(after, /-A PREROUTING .* -j KUBE-SERVICES\n/);
  t.match(after, /--dport 22 -j ACCEPT/);
  t.strictSame(
    forgotten.map((line) => line.replace(/^.*--orig-port-dst (\d+) --orig-dst (\S+) .*$/, '$2 $1')),
    ['10.0.0.53 53', '192.0.2.5 30053'],
  );
  const runs = iptables.scripts.length;
  t.match(await cleanUpIptables(exec, { ...OPTIONS, kubeProxy: true }), { kubeProxyStays: false });
  t.equal(iptables.scripts.length, runs, 'a second time there is nothing to do');
});

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

t.test('a portal that starts takes over what kube-proxy has left', async (t) => {
  const rig = new IptablesRig({}, 'legacy');
  t.teardown(() => rig.portal.close());
  rig.iptables.run(NAT, 4, 'legacy');
  rig.iptables.run(FILTER, 4, 'legacy');
  await rig.sync([wants('a/a', 'clusterIP 10.0.0.1:80')]);
  t.match(rig.lands('10.0.0.1:80'), /proxy port/);
  t.equal(rig.lands('10.0.0.10:80', { from: 'host' }), 'passed on');
  t.equal(rig.iptables.rules('PREROUTING', 4, 'legacy').length, 3, 'no jump is doubled');
  await cleanUpIptables(rig.exec, OPTIONS);
  t.match(rig.iptables.listing(4, 'legacy'), /-j KUBE-SERVICES\n/);
  t.notMatch(rig.iptables.listing(4, 'legacy'), /KUBE-(?:PORTALS|NODEPORT)|KPNG/);
});

t.test('says why it cannot, and refuses names that cannot be', async (t) => {
  const { iptables, exec } = host(NAT);
  iptables.broken = { fails: 'exit', stderr: 'Permission denied (you must be root)\n' };
  await t.rejects(cleanUpIptables(exec, OPTIONS), { code: 'KPNG_PORTAL_PERMISSION' });
  iptables.broken = undefined;
  await t.rejects(cleanUpIptables(exec, { ...OPTIONS, prefix: 'a b' }), { code: 'KPNG_USAGE' });
  for (const name of ['iptables', 'iptables-nft', 'ip6tables-legacy']) iptables.missing.add(name);
  t.match(await cleanUpIptables(exec, { ...OPTIONS, kubeProxy: true }), { kubeProxyStays: false });
  t.notMatch(iptables.listing(4, 'legacy'), /KUBE-PORTALS/, 'with what there is');
});
