/** Which endpoints and which addresses traffic policies, affinity and flags allow. */
import * as objects from '../support/fake-api/objects.ts';
import { eventually } from '../support/until.ts';
import type { Kube } from './support/kube-main.ts';
import { ScriptProcess, type Machine } from './support/machine.ts';
import { ADDRESSES, NODE } from './support/network.ts';
import { PORTALS, testEach, type KindLab } from './support/kinds.ts';
import { onNode } from './support/program.ts';
import {
  CLUSTER,
  EXTERNAL,
  INTERNAL,
  NODE_PORTS,
  OUTSIDE,
  pod,
  service,
} from './support/services.ts';

type Answers = (lab: KindLab, machine: Machine, places: readonly string[]) => Promise<string>;

/** Who answers at these addresses, over several connections each. */
const answers: Answers = async ({ whoIs }, machine, places) => {
  const all: string[] = [];
  for (const place of places) {
    for (let n = 0; n < 4; n += 1) all.push(whoIs(await machine.ask(place)));
  }
  return [...new Set(all)].sort().join(' ');
};

/** The same, where clients may be dropped. */
const answersInVain: Answers = async ({ whoIs }, machine, places) => {
  const all = await Promise.all(places.map((place) => machine.askInVain(place)));
  return [...new Set(all.map(whoIs))].sort().join(' ');
};

/** The pods’ networks; the client is in none of them. */
const PODS = '--cluster-cidr=10.1.0.0/16,fd00:1::/64';
const here = pod('pod-a', { node: 'n1' });
const away = pod('pod-b', { node: 'elsewhere' });

testEach('traffic with the policy Local stays on the node', PORTALS, async (t, net) => {
  const program = net.start({ flags: PODS });
  // Where no packet filter is, the kernel accepts a connection before anyone can drop it.
  const { dropped } = net.kind;
  await program.serve(service([here, away]));
  t.equal(await answers(net, net.client, OUTSIDE), 'pod-a pod-b', 'Cluster');
  await program.serve(service([here, away], { externaltraffictolocal: true }));
  t.equal(await answers(net, net.client, OUTSIDE), 'pod-a', 'Local');
  t.equal(await answers(net, net.podB, OUTSIDE), 'pod-a pod-b', 'but not for pods');
  t.equal(await answers(net, net.node, OUTSIDE), 'pod-a pod-b', 'nor for the node');
  t.equal(await answers(net, net.podB, INTERNAL), 'pod-a pod-b', 'cluster IPs are not concerned');
  await program.serve(service([away], { externaltraffictolocal: true }));
  t.equal(await answersInVain(net, net.client, OUTSIDE), dropped, 'no local endpoint');
  const datagrams = [`${EXTERNAL.v4}:53/UDP`, `[${NODE.v6}]:${NODE_PORTS.UDP}/UDP`];
  t.equal(await answersInVain(net, net.client, datagrams), 'silence');
  for (const machine of [net.podB, net.node]) {
    t.equal(await answers(net, machine, [...OUTSIDE, ...datagrams]), 'pod-b', machine.name);
  }
  t.equal(await answers(net, net.podB, INTERNAL), 'pod-b');
  await program.serve(service([], { externaltraffictolocal: true }));
  t.equal(await answers(net, net.client, OUTSIDE), 'refused', 'no endpoint at all');
  t.equal(await answers(net, net.podB, OUTSIDE), 'refused');
  await program.serve(service([here, away], { externaltraffictolocal: true }));
  t.equal(await answers(net, net.client, OUTSIDE), 'pod-a', 'as soon as there is one');

  await program.serve(service([here, away], { internaltraffictolocal: true }));
  t.equal(await answers(net, net.podB, INTERNAL), 'pod-a', 'Local');
  t.equal(await answers(net, net.node, INTERNAL), 'pod-a', 'for programs of the node, too');
  t.equal(
    await answers(net, net.client, OUTSIDE),
    'pod-a pod-b',
    'other addresses are not concerned',
  );
  await program.serve(service([away], { internaltraffictolocal: true }));
  t.equal(await answersInVain(net, net.podB, INTERNAL), dropped, 'no local endpoint');
  t.equal(await answersInVain(net, net.node, INTERNAL), dropped);
  t.equal(await answers(net, net.client, OUTSIDE), 'pod-b');

  const both = { externaltraffictolocal: true, internaltraffictolocal: true };
  await program.serve(service([away], both));
  t.equal(await answersInVain(net, net.client, OUTSIDE), dropped, 'both policies');
  t.equal(await answersInVain(net, net.podB, INTERNAL), dropped);
  t.equal(await answers(net, net.podB, OUTSIDE), 'pod-b');
  t.equal(await answers(net, net.node, OUTSIDE), 'pod-b');
});

testEach('--nodeport-addresses: the primary ones, or networks', PORTALS, async (t, net) => {
  const program = net.start({ flags: '--nodeport-addresses=primary' });
  await program.serve(service([here]));
  const { TCP, UDP } = NODE_PORTS;
  const primary = [`${NODE.v4}:${TCP}`, `[${NODE.v6}]:${TCP}`];
  const others = [
    `${NODE.world4}:${TCP}`,
    `[${NODE.world6}]:${TCP}`,
    `${NODE.pods4}:${TCP}`,
    `[${NODE.pods6}]:${TCP}`,
  ];
  t.equal(await answers(net, net.client, primary), 'pod-a');
  t.match(await answers(net, net.client, others), /^(?:refused|ECONNREFUSED)$/);
  t.match(await net.client.ask(`${NODE.v4}:${UDP}/UDP`), /^pod-a/);
  t.match(await net.client.ask(`[${NODE.v6}]:${UDP}/UDP`), /^pod-a/);
  t.equal(await net.client.ask(`${NODE.pods4}:${UDP}/UDP`), 'ECONNREFUSED');
  t.equal(await net.node.ask(`127.0.0.1:${TCP}`), 'ECONNREFUSED', 'loopback is not among them');
  t.equal(await answers(net, net.client, INTERNAL), 'pod-a', 'service addresses are not concerned');
  if (net.kind.name === 'address') {
    t.equal(await net.client.ask(`${CLUSTER.v4}:${TCP}`), 'ECONNREFUSED', 'not on them, either');
  }
  await program.end('SIGKILL');
  const flags = '--nodeport-addresses=10.0.0.0/8,localhost';
  await net.start({ flags, state: [service([here])] }).ready();
  t.equal(await net.client.ask(`${NODE.v4}:${TCP}`), 'ECONNREFUSED');
  t.match(await net.podA.ask(`${NODE.pods4}:${UDP}/UDP`), /^pod-a/);
  t.match(await net.node.ask(`127.0.0.1:${TCP}`), /^pod-a/);
});

testEach('the source kube knows pods by the podCIDRs of the node', ['nftables'], async (t, net) => {
  const kube = new ScriptProcess<Kube>(net.network, 'node', 'kube-main.ts');
  t.teardown(() => kube.end());
  const spec = { externalIPs: [EXTERNAL.v4], externalTrafficPolicy: 'Local', type: 'NodePort' };
  await kube.call('upsert', 'services', objects.service('demo/web', CLUSTER.v4, { spec }));
  const far = objects.endpoint(ADDRESSES['pod-b'].v4, { nodeName: 'elsewhere' });
  await kube.call('upsert', 'endpointslices', objects.slice('demo/web-x', [far]));
  const args = [net.kind.flags, '--node-name=n1', '--metrics-bind-address=0'];
  const server = `--server=${await kube.call('url')}`;
  const cli = onNode(t, net.network, ['kube', server, 'to-userspace', ...args]);
  await cli.line('The first complete state is in place', { services: 1 });
  const place = `${EXTERNAL.v4}:80`;
  t.equal(await net.podB.askInVain(place), 'silence', 'not known to be a pod');
  t.match(await net.node.ask(place), /^pod-b/);
  const node = { ...objects.node('n1'), spec: { podCIDRs: ['10.1.0.0/16'] } };
  await kube.call('upsert', 'nodes', node);
  t.ok(await eventually(async () => (await net.podB.askInVain(place)).startsWith('pod-b')));
  t.equal(await net.client.askInVain(place), 'silence');
});

const TCP = [...INTERNAL, ...OUTSIDE];
const UDP = [
  `${CLUSTER.v4}:53/UDP`,
  `[${CLUSTER.v6}]:53/UDP`,
  `${NODE.v4}:${NODE_PORTS.UDP}/UDP`,
  `[${NODE.v6}]:${NODE_PORTS.UDP}/UDP`,
];
/** A client that is refused at once and not after a second try. Milliseconds. */
const AT_ONCE = 900;

testEach('rejected without endpoints, served the moment one appears', PORTALS, async (t, net) => {
  const { client, podA, routed, node } = net;
  const program = net.start();
  const refused = async (when: string): Promise<void> => {
    for (const place of TCP) {
      const ms = async (): Promise<number> => {
        const begin = performance.now();
        t.equal(net.whoIs(await client.ask(place)), 'refused', `${place}, ${when}`);
        return Math.round(performance.now() - begin);
      };
      // The kernel may take a moment until a new address of IPv6 gets its packets.
      const first = await ms();
      const last = first < AT_ONCE ? first : await ms();
      t.ok(last < AT_ONCE, `${place}: after ${first} and ${last} ms`);
    }
    for (const machine of [podA, routed, node]) {
      t.equal(await answers(net, machine, TCP), 'refused', `${machine.name}, ${when}`);
    }
    const expected = net.kind.refusesDatagrams ? 'ECONNREFUSED' : 'silence';
    for (const machine of [client, podA, routed, node]) {
      const all = await Promise.all(UDP.map((place) => machine.ask(place, { waitMs: AT_ONCE })));
      // On the node, sending a datagram that is refused may fail itself, before the refusal is back.
      const told = new Set(all.map((answer) => answer.replace('EPERM', 'ECONNREFUSED')));
      t.same([...told], [expected], `UDP of ${machine.name}, ${when}`);
    }
  };
  await program.serve(service([]));
  await refused('no endpoint yet');
  await program.serveSame(service([pod('pod-a', { ready: false })]));
  await refused('none that is ready');
  await program.serve(service([pod('pod-a')]));
  for (const machine of [client, podA, routed, node]) {
    for (const place of [...TCP, ...UDP]) t.match(await machine.ask(place), /^pod-a/, place);
  }
  const writes = () => program.metric('portal_writes_total', { reason: 'change' });
  const before = await writes();
  await program.serve(service([pod('pod-b')]));
  t.equal(await writes(), before, 'one endpoint for another writes no rule');
  t.match(await client.ask(TCP[0] ?? ''), /^pod-b/);
  // The pod is evicted.
  await program.serve(service([]));
  await refused('the pod is gone');
  t.same(program.complaints, []);
});

// Both kinds of rules learn in the same way whom to let in.
const KINDS = PORTALS.filter((name) => name !== 'iptables-nft');

testEach('clients wait for an endpoint that they may use', KINDS, async (t, net) => {
  const program = net.start({ flags: '--hold-timeout=1m' });
  const held = () => program.metric('connections_held', { service: 'web', port: 'web' });
  const areHeld = (count: number) => eventually(async () => (await held()) === count);
  const local = { externaltraffictolocal: true };
  for (const [places, without, endpoints] of [
    [OUTSIDE, service([away], local), [away, pod('pod-a')]],
    [[...INTERNAL, ...OUTSIDE], service([], local), [pod('pod-a')]],
  ] as const) {
    await program.serve(without);
    const waiting = Promise.all(places.map((place) => net.client.ask(place, { waitMs: 60_000 })));
    t.ok(await areHeld(places.length), 'those without an endpoint wait');
    if (places === OUTSIDE) {
      for (const place of INTERNAL) t.match(await net.podA.ask(place), /^pod-b/, place);
    } else if (net.kind.refusesDatagrams) {
      for (const place of UDP) t.equal(await net.client.ask(place), 'ECONNREFUSED', place);
    }
    await program.serve(service(endpoints, local));
    for (const answer of await waiting) t.match(answer, /^pod-a/);
    t.ok(await areHeld(0));
  }
  t.same(program.complaints, []);
});
