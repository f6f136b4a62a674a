/** Services without endpoints, and endpoints that come as Kubernetes brings them. */
import t from 'tap';
import { lab } from '../support/lab.ts';
import { ADDRESSES, NODE } from '../support/network.ts';
import { PORTALS, startWith, whoIs } from '../support/portals-under-test.ts';
import { CLUSTER, EXTERNAL, NODE_PORTS, pod, service } from '../support/state.ts';
import { Traffic } from '../support/traffic.ts';

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
  t.test(
    `${portal.name}: rejected when no endpoints exist, served the moment one appears`,
    async (t) => {
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
    },
  );
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
    await new Traffic(t, here.network, name).respond(`${v4}:${port}`, `${name} on ${port}`);
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
  t.same(await answers(82), ['refused'], 'nobody has that port any more');
});
