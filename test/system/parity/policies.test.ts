/** Which endpoints and which addresses traffic policies and flags allow. */
import t from 'tap';
import { lab } from '../support/lab.ts';
import type { Machine } from '../support/machine.ts';
import { NODE } from '../support/network.ts';
import { PORTALS, startWith, whoIs, type PortalUnderTest } from '../support/portals-under-test.ts';
import { CLUSTER, EXTERNAL, NODE_PORTS, pod, service } from '../support/state.ts';

const INTERNAL = [`${CLUSTER.v4}:80`, `[${CLUSTER.v6}]:80`];
const OUTSIDE = [
  `${EXTERNAL.v4}:80`,
  `[${EXTERNAL.v6}]:80`,
  `${NODE.v4}:${NODE_PORTS.TCP}`,
  `[${NODE.v6}]:${NODE_PORTS.TCP}`,
];

/** Who answers at these places, over several connections each. */
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

const here = pod('pod-a', { node: 'n1' });
const away = pod('pod-b', { node: 'elsewhere' });

for (const portal of PORTALS) {
  t.test(`${portal.name}: traffic with the policy Local stays on the node`, async (t) => {
    const net = await lab(t);
    const program = startWith(t, net, portal);
    await program.serve(service([here, away]));
    t.equal(await answers(portal, net.client, OUTSIDE), 'pod-a pod-b', 'Cluster');
    await program.serve(service([here, away], { externaltraffictolocal: true }));
    t.equal(await answers(portal, net.client, OUTSIDE), 'pod-a', 'Local');
    t.equal(
      await answers(portal, net.podB, INTERNAL),
      'pod-a pod-b',
      'cluster IPs are not concerned',
    );
    await program.serve(service([away], { externaltraffictolocal: true }));
    t.equal(await answers(portal, net.client, OUTSIDE), 'refused', 'no local endpoint');
    t.equal(await answers(portal, net.podB, INTERNAL), 'pod-b');
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
    t.equal(await answers(portal, net.podB, INTERNAL), 'refused', 'no local endpoint');
    t.equal(await answers(portal, net.client, OUTSIDE), 'pod-b');
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

t.test('what is local depends on --node-name', async (t) => {
  const net = await lab(t);
  const [portal] = PORTALS;
  const program = startWith(t, net, portal, { nodeName: 'elsewhere' });
  const both = { externaltraffictolocal: true, internaltraffictolocal: true };
  await program.serve(service([here, away], both));
  t.equal(await answers(portal, net.client, OUTSIDE), 'pod-b');
  t.equal(await answers(portal, net.podA, INTERNAL), 'pod-b');
});
