import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import t, { type Test } from 'tap';
import type { Command } from '../../../src/portal/exec.ts';
import { iptablesCanary } from '../../../src/portal/iptables/canary.ts';
import { cleanUpIptables } from '../../../src/portal/iptables/left-over.ts';
import { areOurs, findRules, ownersOf } from '../../../src/portal/iptables/listing.ts';
import { canaryAddress } from '../../../src/portal/rules/canary.ts';
import type { RuleConfig } from '../../../src/portal/rules/backend.ts';
import type { Element } from '../../../src/portal/rules/elements.ts';
import { FakeIptables } from '../../support/fake-iptables.ts';
import { IptablesRig } from '../../support/rule-rigs.ts';
import { wants } from '../../support/portals.ts';

function config(owner: string): RuleConfig {
  return {
    owner,
    families: [4],
    targets: { 4: '192.0.2.5', 6: undefined },
    nodePortNetworks: { 4: ['0.0.0.0/0'], 6: [] },
  };
}

async function open(t: Test, owner: string) {
  const canary = iptablesCanary(config(owner), 'KUBE');
  t.teardown(() => canary.close());
  return { canary, rules: await canary.open() };
}

/** A server that listens where the rules redirect to stands in for the rules of nat; Linux has all of 127.0.0.0/8. */
async function standIn(t: Test, owner: string): Promise<Server[]> {
  const { address, port } = canaryAddress(owner, 4);
  const servers = await Promise.all(
    [port, port + 1].map(async (each) => {
      const server = createServer((socket) => socket.on('error', () => undefined).resume());
      server.listen(each, address);
      await once(server, 'listening');
      return server;
    }),
  );
  t.teardown(() => servers.forEach((server) => server.close()));
  return servers;
}

/** The chains that a rule is in, and its target. */
function waysOf(rules: readonly Element[], port: string): string[] {
  return rules
    .filter(({ key }) => new RegExp(`--dport ${port}(?: |$)`).test(key))
    .map(({ set, value }) => `${set} ${value}`);
}

t.test('packets of the canary pass all our chains', async (t) => {
  const { rules } = await open(t, 'abc');
  const { port } = canaryAddress('abc', 4);
  const proxyPort = rules.find(
    ({ set, value }) => set === 'portals-container4' && /^\d/.test(value),
  );
  t.strictSame(waysOf(rules, String(port)), [
    'portals-host4 -j KUBE-PORTALS-CONTAINER',
    `portals-container4 ${proxyPort?.value}`,
  ]);
  t.strictSame(waysOf(rules, String(port + 1)), [
    'portals-host4 -j KUBE-NODEPORT-HOST',
    'nodeport-host4 -j KUBE-NODEPORT-CONTAINER',
    `nodeport-container4 ${proxyPort?.value}`,
  ]);
  const out = rules.find(({ set }) => set === 'non-local-first4');
  const outPort = /--dport (\d+)/.exec(out?.key ?? '')?.[1] ?? '';
  t.match(out, { key: /-o lo$/, value: '-j REJECT --reject-with tcp-reset' });
  t.strictSame(waysOf(rules, outPort).slice(0, 3), [
    'refuse4 -j KUBE-NODEPORT-REJECT',
    'nodeport-refuse4 -j KUBE-PROXY-PORTS',
    'proxy-ports4 -j KUBE-NODEPORT-NON-LOCAL',
  ]);
  t.match(
    rules.filter(({ key }) => key.endsWith('-i lo')),
    [{ set: 'refuse4', value: /REJECT/ }],
    'and one is refused on its way in',
  );
  t.match(
    rules.find(({ key }) => key.endsWith(`--dport ${proxyPort?.value}`)),
    { set: 'proxy-ports4', value: /REJECT/ },
    'no one reaches its proxy port directly',
  );
});

const onlyLinux = process.platform === 'linux' ? {} : { skip: 'only on linux' };

t.test('without rules it is dead', async (t) => {
  const { canary } = await open(t, 'gone');
  t.equal(await canary.probe(), 'gone');
});

t.test('with nat rules only, missing rejects are detected', onlyLinux, async (t) => {
  const { canary } = await open(t, 'nat-only');
  await standIn(t, 'nat-only');
  t.equal(await canary.probe(), 'gone');
});

t.test('for another process, only the canary itself counts', onlyLinux, async (t) => {
  const { canary } = await open(t, 'mine');
  const [first, second] = await standIn(t, 'other');
  second?.close();
  t.equal(await canary.probe('other'), 'alive');
  first?.close();
  if (first !== undefined) await once(first, 'close');
  t.equal(await canary.probe('other'), 'gone');
});

t.test('with all rules it is alive', onlyLinux, async (t) => {
  const { canary } = await open(t, 'alive');
  await standIn(t, 'alive');
  // What refuses connections stands in for the rules of filter.
  canary.close();
  t.equal(await canary.probe(), 'alive');
});

t.test('can be closed twice', async (t) => {
  const { canary } = await open(t, 'twice');
  canary.close();
  canary.close();
  t.pass();
});

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

t.test(
  'kube-proxy’s chains are distinguished from ours, though they have the same names',
  async (t) => {
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
  },
);

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

t.test('reports why it cannot, and refuses invalid names', async (t) => {
  const { iptables, exec } = host(NAT);
  iptables.broken = { fails: 'exit', stderr: 'Permission denied (you must be root)\n' };
  await t.rejects(cleanUpIptables(exec, OPTIONS), { code: 'KPNG_PORTAL_PERMISSION' });
  iptables.broken = undefined;
  await t.rejects(cleanUpIptables(exec, { ...OPTIONS, prefix: 'a b' }), { code: 'KPNG_USAGE' });
  for (const name of ['iptables', 'iptables-nft', 'ip6tables-legacy']) iptables.missing.add(name);
  t.match(await cleanUpIptables(exec, { ...OPTIONS, kubeProxy: true }), { kubeProxyStays: false });
  t.notMatch(iptables.listing(4, 'legacy'), /KUBE-PORTALS/, 'with what there is');
});
