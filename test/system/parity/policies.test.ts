/** Which endpoints and which addresses traffic policies and flags allow. */
import t from 'tap';
import * as objects from '../../support/fake-api/objects.ts';
import type { Kube } from '../support/kube-main.ts';
import { lab } from '../support/lab.ts';
import { ScriptProcess, type Machine } from '../support/machine.ts';
import { ADDRESSES, NODE } from '../support/network.ts';
import { PORTALS, type PortalUnderTest, startWith, whoIs } from '../support/portals-under-test.ts';
import { onNode } from '../support/web-proxy.ts';
import {
  CLUSTER,
  EXTERNAL,
  INTERNAL,
  NODE_PORTS,
  OUTSIDE,
  pod,
  service,
} from '../support/proxy.ts';

/** Who answers at these addresses, over several connections each. */
async function answers(
  portal: PortalUnderTest,
  machine: Machine,
  places: readonly string[],
): Promise<string> {
  const all: string[] = [];
  for (const place of places) {
    for (let n = 0; n < 4; n += 1) all.push(whoIs(portal, await machine.ask(place)));
  }
  return [...new Set(all)].sort().join(' ');
}

/** The same, where clients may be dropped. */
async function answersInVain(
  portal: PortalUnderTest,
  machine: Machine,
  places: readonly string[],
): Promise<string> {
  const all = await Promise.all(places.map((place) => machine.askInVain(place)));
  return [...new Set(all.map((answer) => whoIs(portal, answer)))].sort().join(' ');
}

/** The pods’ networks; the client is in none of them. */
const PODS = '--cluster-cidr=10.1.0.0/16,fd00:1::/64';
const here = pod('pod-a', { node: 'n1' });
const away = pod('pod-b', { node: 'elsewhere' });

for (const portal of PORTALS) {
  t.test(`${portal.name}: traffic with the policy Local stays on the node`, async (t) => {
    const net = await lab(t);
    const program = startWith(t, net, portal, { flags: [PODS] });
    // Where no packet filter is, the kernel accepts a connection before anyone can drop it.
    const dropped = portal.name === 'address' ? 'refused' : 'silence';
    await program.serve(service([here, away]));
    t.equal(await answers(portal, net.client, OUTSIDE), 'pod-a pod-b', 'Cluster');
    await program.serve(service([here, away], { externaltraffictolocal: true }));
    t.equal(await answers(portal, net.client, OUTSIDE), 'pod-a', 'Local');
    t.equal(await answers(portal, net.podB, OUTSIDE), 'pod-a pod-b', 'but not for pods');
    t.equal(await answers(portal, net.node, OUTSIDE), 'pod-a pod-b', 'nor for the node');
    t.equal(
      await answers(portal, net.podB, INTERNAL),
      'pod-a pod-b',
      'cluster IPs are not concerned',
    );
    await program.serve(service([away], { externaltraffictolocal: true }));
    t.equal(await answersInVain(portal, net.client, OUTSIDE), dropped, 'no local endpoint');
    const datagrams = [`${EXTERNAL.v4}:53/UDP`, `[${NODE.v6}]:${NODE_PORTS.UDP}/UDP`];
    t.equal(await answersInVain(portal, net.client, datagrams), 'silence');
    for (const machine of [net.podB, net.node]) {
      t.equal(await answers(portal, machine, [...OUTSIDE, ...datagrams]), 'pod-b', machine.name);
    }
    t.equal(await answers(portal, net.podB, INTERNAL), 'pod-b');
    await program.serve(service([], { externaltraffictolocal: true }));
    t.equal(await answers(portal, net.client, OUTSIDE), 'refused', 'no endpoint at all');
    t.equal(await answers(portal, net.podB, OUTSIDE), 'refused');
    await program.serve(service([here, away], { externaltraffictolocal: true }));
    t.equal(await answers(portal, net.client, OUTSIDE), 'pod-a', 'as soon as there is one');

    await program.serve(service([here, away], { internaltraffictolocal: true }));
    t.equal(await answers(portal, net.podB, INTERNAL), 'pod-a', 'Local');
    t.equal(await answers(portal, net.node, INTERNAL), 'pod-a', 'for programs of the node, too');
    t.equal(
      await answers(portal, net.client, OUTSIDE),
      'pod-a pod-b',
      'other addresses are not concerned',
    );
    await program.serve(service([away], { internaltraffictolocal: true }));
    t.equal(await answersInVain(portal, net.podB, INTERNAL), dropped, 'no local endpoint');
    t.equal(await answersInVain(portal, net.node, INTERNAL), dropped);
    t.equal(await answers(portal, net.client, OUTSIDE), 'pod-b');

    const both = { externaltraffictolocal: true, internaltraffictolocal: true };
    await program.serve(service([away], both));
    t.equal(await answersInVain(portal, net.client, OUTSIDE), dropped, 'both policies');
    t.equal(await answersInVain(portal, net.podB, INTERNAL), dropped);
    t.equal(await answers(portal, net.podB, OUTSIDE), 'pod-b');
    t.equal(await answers(portal, net.node, OUTSIDE), 'pod-b');
  });

  if (portal.name === 'iptables') continue; // test/system/paths.test.ts has it.
  t.test(`${portal.name}: node ports only on the primary addresses of the node`, async (t) => {
    const net = await lab(t);
    const program = startWith(t, net, portal, { flags: ['--nodeport-addresses=primary'] });
    await program.serve(service([here]));
    const { TCP, UDP } = NODE_PORTS;
    const primary = [`${NODE.v4}:${TCP}`, `[${NODE.v6}]:${TCP}`];
    const others = [
      `${NODE.world4}:${TCP}`,
      `[${NODE.world6}]:${TCP}`,
      `${NODE.pods4}:${TCP}`,
      `[${NODE.pods6}]:${TCP}`,
    ];
    t.equal(await answers(portal, net.client, primary), 'pod-a');
    t.match(await answers(portal, net.client, others), /^(?:refused|ECONNREFUSED)$/);
    t.match(await net.client.ask(`${NODE.v4}:${UDP}/UDP`), /^pod-a/);
    t.match(await net.client.ask(`[${NODE.v6}]:${UDP}/UDP`), /^pod-a/);
    t.equal(await net.client.ask(`${NODE.pods4}:${UDP}/UDP`), 'ECONNREFUSED');
    t.equal(await net.node.ask(`127.0.0.1:${TCP}`), 'ECONNREFUSED', 'loopback is not among them');
    t.equal(
      await answers(portal, net.client, INTERNAL),
      'pod-a',
      'service addresses are not concerned',
    );
  });
}

t.test('the source kube knows pods by the podCIDRs of the node', async (t) => {
  const net = await lab(t);
  const kube = new ScriptProcess<Kube>(net.network, 'node', 'kube-main.ts');
  t.teardown(() => kube.end());
  const spec = { externalIPs: [EXTERNAL.v4], externalTrafficPolicy: 'Local', type: 'NodePort' };
  await kube.call('upsert', 'services', objects.service('demo/web', CLUSTER.v4, { spec }));
  const far = objects.endpoint(ADDRESSES['pod-b'].v4, { nodeName: 'elsewhere' });
  await kube.call('upsert', 'endpointslices', objects.slice('demo/web-x', [far]));
  const args = ['--portal=nftables', '--node-name=n1', '--metrics-bind-address=0'];
  const server = `--server=${await kube.call('url')}`;
  const cli = onNode(t, net, ['kube', server, 'to-userspace', ...args]);
  await cli.line('The first complete state is in place', { services: 1 });
  const place = `${EXTERNAL.v4}:80`;
  t.equal(await net.podB.askInVain(place), 'silence', 'not known to be a pod');
  t.match(await net.node.ask(place), /^pod-b/);
  const node = { ...objects.node('n1'), spec: { podCIDRs: ['10.1.0.0/16'] } };
  await kube.call('upsert', 'nodes', node);
  let answer = '';
  for (let n = 0; n < 20 && !answer.startsWith('pod-b'); n += 1) {
    answer = await net.podB.askInVain(place);
  }
  t.match(answer, /^pod-b/);
  t.equal(await net.client.askInVain(place), 'silence');
});

t.test('what is local depends on --node-name', async (t) => {
  const net = await lab(t);
  const [portal] = PORTALS;
  const program = startWith(t, net, portal, { nodeName: 'elsewhere' });
  const both = { externaltraffictolocal: true, internaltraffictolocal: true };
  await program.serve(service([here, away], both));
  t.equal(await answers(portal, net.client, OUTSIDE), 'pod-b');
  t.equal(await answers(portal, net.podA, INTERNAL), 'pod-b');
});

const TCP = [
  `${CLUSTER.v4}:80`,
  `[${CLUSTER.v6}]:80`,
  `${EXTERNAL.v4}:80`,
  `${NODE.v4}:${NODE_PORTS.TCP}`,
  `[${NODE.v6}]:${NODE_PORTS.TCP}`,
];
const UDP = [
  `${CLUSTER.v4}:53/UDP`,
  `[${CLUSTER.v6}]:53/UDP`,
  `${NODE.v4}:${NODE_PORTS.UDP}/UDP`,
  `[${NODE.v6}]:${NODE_PORTS.UDP}/UDP`,
];
/** A client that is refused at once and not after a second try. Milliseconds. */
const AT_ONCE = 900;

for (const portal of PORTALS) {
  t.test(`${portal.name}: rejected without endpoints, served the moment one appears`, async (t) => {
    const here = await lab(t);
    const program = startWith(t, here, portal);
    const refused = async (when: string): Promise<void> => {
      for (const place of TCP) {
        const ms = async (): Promise<number> => {
          const begin = performance.now();
          t.equal(whoIs(portal, await here.client.ask(place)), 'refused', `${place}, ${when}`);
          return Math.round(performance.now() - begin);
        };
        // The kernel may take a moment until a new address of IPv6 gets its packets.
        const first = await ms();
        const last = first < AT_ONCE ? first : await ms();
        t.ok(last < AT_ONCE, `${place}: after ${first} and ${last} ms`);
      }
      const told = await Promise.all(
        UDP.map((place) => here.client.ask(place, { waitMs: AT_ONCE })),
      );
      const expected = portal.refusesDatagrams ? 'ECONNREFUSED' : 'silence';
      t.same([...new Set(told)], [expected], `UDP, ${when}`);
    };
    await program.serve(service([]));
    await refused('no endpoint yet');
    await program.serveSame(service([pod('pod-a', { ready: false })]));
    await refused('none that is ready');
    await program.serve(service([pod('pod-a')]));
    for (const place of [...TCP, ...UDP]) t.match(await here.client.ask(place), /^pod-a/, place);
    // The pod is evicted.
    await program.serve(service([]));
    await refused('the pod is gone');
    t.same(program.complaints, []);
  });
}

const [portal] = PORTALS;

t.test('endpoints of several slices, with ports of their own', async (t) => {
  const here = await lab(t);
  const program = startWith(t, here, portal);
  for (const [name, port] of [
    ['pod-a', 9001],
    ['pod-b', 9002],
    ['pod-b', 9003],
  ] as const) {
    const { v4 } = ADDRESSES[name];
    await (name === 'pod-a' ? here.podA : here.podB).agent.call(
      'respond',
      `${v4}:${port}`,
      `${name} on ${port}`,
    );
  }
  const ports = [
    { name: 'one', protocol: 'TCP', port: 81, targetport: 9009 },
    { name: 'two', protocol: 'TCP', port: 82, targetport: 9009 },
  ];
  await program.serve(
    service(
      [pod('pod-a', { ports: { one: 9001 } }), pod('pod-b', { ports: { one: 9002, two: 9003 } })],
      {
        ports,
      },
    ),
  );
  const answers = async (port: number): Promise<string[]> => {
    const all = await Promise.all([1, 2, 3, 4].map(() => here.client.ask(`${CLUSTER.v4}:${port}`)));
    return [
      ...new Set(all.map((one) => (one.startsWith('pod') ? one : whoIs(portal, one)))),
    ].sort();
  };
  t.same(await answers(81), ['pod-a on 9001', 'pod-b on 9002'], 'the port that both have');
  t.same(await answers(82), ['pod-b on 9003'], 'the port that one of them has');
  // The slice with pod-b loses a port.
  await program.serve(
    service([pod('pod-a', { ports: { one: 9001 } }), pod('pod-b', { ports: { one: 9002 } })], {
      ports,
    }),
  );
  t.same(await answers(81), ['pod-a on 9001', 'pod-b on 9002']);
  t.same(await answers(82), ['refused'], 'no one has that port any more');
});
