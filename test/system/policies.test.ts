/** Which endpoints and which addresses traffic policies, affinity and flags allow. */
import { isDeepStrictEqual } from 'node:util';
import * as objects from '../support/fake-api/objects.ts';
import { eventually } from '../support/until.ts';
import type { Kube } from './support/kube-main.ts';
import { ScriptProcess, type Machine } from './support/machine.ts';
import { ADDRESSES, NODE } from './support/network.ts';
import { PORTALS, testEach, type KindLab } from './support/kinds.ts';
import { onNode } from './support/program.ts';
import {
  CLUSTER,
  DATAGRAMS,
  EXTERNAL,
  INTERNAL,
  NODE_PORTS,
  OUTSIDE,
  pod,
  service,
  tcpPlaces,
} from './support/services.ts';

/** Who answers at these addresses, over several connections each. */
async function answers({ whoIs }: KindLab, machine: Machine, places: readonly string[]) {
  const repeated = [0, 1, 2, 3].flatMap(() => places);
  const all = await Promise.all(repeated.map((place) => machine.ask(place)));
  return [...new Set(all.map(whoIs))].sort().join(' ');
}

/** The pods’ networks; the client is in none of them. */
const PODS = '--cluster-cidr=10.1.0.0/16,fd00:1::/64';
const here = pod('pod-a', { node: 'n1' });
const away = pod('pod-b', { node: 'elsewhere' });

const AT = {
  inside: INTERNAL,
  outside: OUTSIDE,
  datagrams: [`${EXTERNAL.v4}:53/UDP`, `[${NODE.v6}]:${NODE_PORTS.UDP}/UDP`],
};
const [E, I] = [{ externaltraffictolocal: true }, { internaltraffictolocal: true }];

/** Endpoints, policies, and who answers whom where. */
const POLICIES: readonly [object[], Record<string, boolean>, string][] = [
  [[here, away], {}, 'client outside: pod-a pod-b'],
  [[here, away], E, 'client outside: pod-a; podB outside: pod-a pod-b; node outside: pod-a pod-b'],
  [[here, away], E, 'podB inside: pod-a pod-b'],
  [[away], E, 'client outside: dropped; podB outside: pod-b; node outside: pod-b'],
  [[away], E, 'client datagrams: dropped; podB datagrams: pod-b; node datagrams: pod-b'],
  [[away], E, 'podB inside: pod-b'],
  [[], E, 'client outside: refused; podB outside: refused'],
  [[here, away], I, 'podB inside: pod-a; node inside: pod-a; client outside: pod-a pod-b'],
  [[away], I, 'podB inside: dropped; node inside: dropped; client outside: pod-b'],
  [[away], { ...E, ...I }, 'client outside: dropped; podB inside: dropped'],
  [[away], { ...E, ...I }, 'podB outside: pod-b; node outside: pod-b'],
];

testEach('traffic with the policy Local stays on the node', PORTALS, async (t, net) => {
  const program = net.start({ flags: PODS });
  let before: object = {};
  for (const [endpoints, policies, expected] of POLICIES) {
    const state = service(endpoints, policies);
    if (!isDeepStrictEqual(state, before)) await program.serve(state);
    before = state;
    for (const line of expected.split('; ')) {
      const [, who, where, answer = ''] = /^(\w+) (\w+): (.+)$/.exec(line) ?? [];
      const [machine, places] = [net[who as 'client'], AT[where as 'inside']];
      if (answer === 'dropped') await Promise.all(places.map((at) => net.isDropped(machine, at)));
      else t.equal(await answers(net, machine, places), answer, JSON.stringify([policies, line]));
    }
  }
});

testEach('--nodeport-addresses: the primary ones, or networks', PORTALS, async (t, net) => {
  const program = net.start({ flags: '--nodeport-addresses=primary' });
  await program.serve(service([here]));
  const { TCP, UDP } = NODE_PORTS;
  const others = [
    ...tcpPlaces({ v4: NODE.world4, v6: NODE.world6 }, TCP),
    ...tcpPlaces({ v4: NODE.pods4, v6: NODE.pods6 }, TCP),
  ];
  t.equal(await answers(net, net.client, tcpPlaces(NODE, TCP)), 'pod-a');
  t.match(await answers(net, net.client, others), /^(?:refused|ECONNREFUSED)$/);
  t.equal(await answers(net, net.client, DATAGRAMS), 'pod-a');
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
/** The kernel repeats the first packet of a connection after a second. */
const SECOND_TRY_MS = 900;

testEach('rejected without endpoints, served the moment one appears', PORTALS, async (t, net) => {
  const { client, podA, routed, node } = net;
  const program = net.start();
  const refused = async (when: string): Promise<void> => {
    for (const place of TCP) {
      // A busy machine may take longer, and the kernel until a new address of IPv6 gets its packets.
      const isQuick = async (): Promise<boolean> => {
        const begin = performance.now();
        t.equal(net.whoIs(await client.ask(place)), 'refused', `${place}, ${when}`);
        return performance.now() - begin < SECOND_TRY_MS;
      };
      t.ok(await eventually(isQuick), `${place}, ${when}: not after a second try of the kernel`);
    }
    for (const machine of [podA, routed, node]) {
      t.equal(await answers(net, machine, TCP), 'refused', `${machine.name}, ${when}`);
    }
    const [expected, ask] = net.kind.refusesDatagrams
      ? (['ECONNREFUSED', 'ask'] as const)
      : (['silence', 'askInVain'] as const);
    for (const machine of [client, podA, routed, node]) {
      const all = await Promise.all(DATAGRAMS.map((place) => machine[ask](place)));
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
    for (const place of [...TCP, ...DATAGRAMS]) t.match(await machine.ask(place), /^pod-a/, place);
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
      for (const place of DATAGRAMS) t.equal(await net.client.ask(place), 'ECONNREFUSED', place);
    }
    await program.serve(service(endpoints, local));
    for (const answer of await waiting) t.match(answer, /^pod-a/);
    t.ok(await areHeld(0));
  }
  t.same(program.complaints, []);
});
