/** What only the portal with iptables does. What it shares with others is in the tests beside this one. */
import type { Exec } from '../../src/portal/exec.ts';
import { cleanUpIptables, tryIptables } from '../../src/portal/iptables/backend.ts';
import { findTools, type Flavor } from '../../src/portal/iptables/tools.ts';
import { NODE } from './support/network.ts';
import { testEach, type KindLab } from './support/kinds.ts';
import { CLUSTER, NODE_PORTS, places, service, simple } from './support/services.ts';

const NFT = ['iptables-nft'] as const;
const BOTH = ['iptables-nft', 'iptables-legacy'] as const;
const flavorOf = ({ kind }: KindLab): Flavor => (kind.name.endsWith('nft') ? 'nft' : 'legacy');
/** What restores rules of one family, as the program of that flavour. */
const restore = (here: KindLab, stdin: string, ip = 'iptables') =>
  here.exec({ file: `${ip}-${flavorOf(here)}-restore`, args: ['--noflush'], stdin });

testEach('detects whether it may write rules, also several at once', BOTH, async (t, here) => {
  await here.sh(here.kind.addOthers);
  const before = await here.rules();
  const tools = await findTools(here.exec, flavorOf(here));
  const starting = await Promise.all(
    Array.from({ length: 4 }, () => tryIptables(here.exec, tools, [4, 6])),
  );
  for (const usable of starting) t.match(usable, { families: [4, 6] });
  t.equal(await here.rules(), before);
  const without = ['--bounding-set=-net_admin', '--inh-caps=-net_admin'];
  const unprivileged: Exec = ({ file, args, ...rest }) =>
    here.exec({ ...rest, file: 'setpriv', args: [...without, file, ...args] });
  const { families, problems } = await tryIptables(unprivileged, tools, [4, 6]);
  t.strictSame(families, []);
  t.match(problems.get(4), { code: 'KPNG_PORTAL_PERMISSION', message: /CAP_NET_ADMIN/ });
});

/** As kube-proxy's userspace mode leaves it: one service, and another program's rules around it. */
const LEFT_BY_KUBE_PROXY = `*nat
:KUBE-PORTALS-CONTAINER - [0:0]
:KUBE-PORTALS-HOST - [0:0]
:KUBE-NODEPORT-CONTAINER - [0:0]
:KUBE-NODEPORT-HOST - [0:0]
-I PREROUTING -m comment --comment "handle ClusterIPs; NOTE: this must be before the NodePort rules" -j KUBE-PORTALS-CONTAINER
-I OUTPUT -m comment --comment "handle ClusterIPs; NOTE: this must be before the NodePort rules" -j KUBE-PORTALS-HOST
-A PREROUTING -m addrtype --dst-type LOCAL -m comment --comment "handle service NodePorts; NOTE: this must be the last rule in the chain" -j KUBE-NODEPORT-CONTAINER
-A OUTPUT -m addrtype --dst-type LOCAL -m comment --comment "handle service NodePorts; NOTE: this must be the last rule in the chain" -j KUBE-NODEPORT-HOST
-A KUBE-PORTALS-CONTAINER -m comment --comment kube-system/dns:dns -p udp -m udp --dport 53 -d 10.96.0.53/32 -j DNAT --to-destination ${NODE.v4}:41000
-A KUBE-PORTALS-HOST -m comment --comment kube-system/dns:dns -p udp -m udp --dport 53 -d 10.96.0.53/32 -j DNAT --to-destination ${NODE.v4}:41000
-A KUBE-NODEPORT-CONTAINER -m comment --comment kube-system/dns:dns -p udp -m udp --dport 30053 -j REDIRECT --to-ports 41000
COMMIT
*filter
:KUBE-NODEPORT-NON-LOCAL - [0:0]
-I INPUT -m comment --comment "Ensure that non-local NodePort traffic can flow" -j KUBE-NODEPORT-NON-LOCAL
-A KUBE-NODEPORT-NON-LOCAL -m comment --comment kube-system/dns:dns -p udp -m udp --dport 41000 -m state --state NEW -j ACCEPT
COMMIT
`;

const CLEANUP = { prefix: 'KUBE', kubeProxy: false };

testEach('kube-proxy’s chains are removed on request, and taken over', BOTH, async (t, here) => {
  await here.sh(here.kind.addOthers);
  const before = await here.rules();
  await restore(here, LEFT_BY_KUBE_PROXY);
  await here.node.serve(`${NODE.v4}:41000/UDP`, 'proxy');
  await here.client.open('cluster', '10.96.0.53:53/UDP');
  t.match(await here.client.say('cluster'), /^proxy/);
  const left = await here.rules();

  t.match(await cleanUpIptables(here.exec, CLEANUP), { kubeProxyStays: true });
  t.equal(await here.rules(), left);
  t.match(await here.client.say('cluster'), /^proxy/);

  const asked = { ...CLEANUP, kubeProxy: true };
  for (const time of ['first', 'second']) {
    const outcome = await cleanUpIptables(here.exec, asked);
    t.match(outcome, { kubeProxyStays: false, flowsStay: undefined }, time);
    t.equal(await here.rules(), before, time);
  }
  t.equal(await here.client.say('cluster', 300), 'silence', 'the kernel has forgotten the way');

  await restore(here, LEFT_BY_KUBE_PROXY);
  const program = here.start();
  await program.serve(service(), simple('dns', '10.96.0.53', 'UDP 53'));
  t.match(await here.client.ask('10.96.0.53:53/UDP'), /^pod-a/);
  t.match(await here.client.ask(`${CLUSTER.v4}:80`), /^pod/);
  t.notMatch(await here.rules(), /41000/);
  await program.end('SIGKILL');
  t.match(await cleanUpIptables(here.exec, CLEANUP), { kubeProxyStays: false });
  t.equal(await here.rules(), before);
});

testEach('node ports pass a firewall that drops everything else', NFT, async (t, here) => {
  const accept = ['-m conntrack --ctstate ESTABLISHED,RELATED', '-i lo'];
  const firewall = (...more: string[]): string =>
    `*filter\n${[...accept, ...more].map((rule) => `-A INPUT ${rule} -j ACCEPT\n`).join('')}-A INPUT -j DROP\nCOMMIT\n`;
  await restore(here, firewall());
  await restore(here, firewall('-p ipv6-icmp'), 'ip6tables');
  await here.start().serve(service());
  for (const place of places(NODE, NODE_PORTS.TCP, NODE_PORTS.UDP)) {
    t.match(await here.client.ask(place), /^pod/, place);
  }
  const [, port = ''] = here.kind.portalOf(CLUSTER.v4, 'tcp', 80).exec(await here.rules()) ?? [];
  t.equal(await here.client.ask(`${NODE.v4}:${port}`), 'ECONNREFUSED', 'not its proxy port');
});
