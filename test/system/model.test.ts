/**
 * The kernel, with rules of each kind, against the evaluating nft of the unit tests: the same portals, the same packets,
 * the same landings. What the unit tests show with it holds for the kernel as far as this holds.
 */
import * as fc from 'fast-check';
import type { PortalSpec, ServicePortPortals } from '../../src/portal/portal.ts';
import { landing, type Landing, type Packet } from '../support/fake-nft.ts';
import { portal } from '../support/portals.ts';
import { CONTENT, IptablesRig, NftablesRig } from '../support/rule-rigs.ts';
import type { Lab } from './support/lab.ts';
import type { Machine } from './support/machine.ts';
import { ADDRESSES, NODE, STRANGER } from './support/network.ts';
import { testEach, type KindLab } from './support/kinds.ts';

/** Ports of services, of what already listens on the node and in the world, and of two node ports. */
const PORTS = [80, 443, 30_080, 30_443];
const FAR = ['10.96.0.1', '10.96.0.2', 'fd96::1', 'fd96::2'];
/** Addresses of the node, which services may have, too. */
const NEAR = [NODE.v4, NODE.pods4, NODE.v6];
const LOCAL = new Set<string>(Object.values(NODE));
/** Proxy ports, as rigs choose them: something listens on each of them all the time. */
const FIRST_PROXY_PORT = 40_001;
const PROXY_PORTS = 16;

const aPortal = fc.record({
  place: fc.constantFrom(...FAR, ...NEAR, 'node', 'node', 'node'),
  port: fc.constantFrom(...PORTS),
  ranges: fc.option(
    fc.subarray([
      '192.0.2.0/24',
      '192.0.2.9/30',
      '198.51.100.0/24',
      '2001:db8:1::/124',
      '10.0.0.0/8',
    ]),
    { nil: [], freq: 2 },
  ),
});

/** Clients that a service port has endpoints for; `elsewhere`: none here, as they are on other nodes. */
const SERVED = {
  all: { internal: true, external: true },
  none: { internal: false, external: false },
  cluster: { internal: true, external: false },
  elsewhere: { internal: false, external: false, cluster: true },
};
const PODS = { networks: ['10.1.0.0/16', 'fd00:1::/64'], traffic: 'internal' } as const;

/** Service ports of one protocol each. */
const services = fc
  .array(
    fc.record({
      protocol: fc.constantFrom('', '/UDP'),
      portals: fc.array(aPortal, { minLength: 1, maxLength: 6 }),
      served: fc.constantFrom<keyof typeof SERVED>('all', 'all', 'none', 'cluster', 'elsewhere'),
    }),
    { maxLength: 8 },
  )
  .map((list) =>
    list.map(({ protocol, portals, served }, index): ServicePortPortals => ({
      servicePort: `d/s${index}`,
      portals: portals.map(({ place, port, ranges }): PortalSpec => {
        const spec =
          place === 'node'
            ? portal(`nodePort ${port}${protocol}`)
            : portal(`loadBalancerIP ${place}:${port}${protocol}`, ranges);
        if (served === 'cluster') return { ...spec, clusterClients: PODS };
        // A node port that no client may use does not exist: pods and the node reach the endpoints elsewhere.
        if (served !== 'elsewhere' || place !== 'node') return spec;
        return { ...spec, clusterClients: { ...PODS, traffic: 'cluster' } };
      }),
      served: SERVED[served],
      splitTraffic: false,
    })),
  );

const SOURCES: Record<Packet['from'], { v4: string[]; v6: string[] }> = {
  outside: { v4: [ADDRESSES.client.v4, STRANGER.v4], v6: [ADDRESSES.client.v6, STRANGER.v6] },
  pod: { v4: [ADDRESSES['pod-a'].v4], v6: [ADDRESSES['pod-a'].v6] },
  host: { v4: [NODE.v4], v6: [NODE.v6] },
};

const packets = fc.array(
  fc
    .record({
      from: fc.constantFrom<Packet['from']>('outside', 'pod', 'host'),
      destination: fc.constantFrom(...FAR, ...NEAR),
      port: fc.oneof(
        { weight: 6, arbitrary: fc.constantFrom(...PORTS) },
        { weight: 1, arbitrary: fc.integer({ min: FIRST_PROXY_PORT, max: FIRST_PROXY_PORT + 3 }) },
      ),
      protocol: fc.constantFrom('TCP' as const, 'UDP' as const),
      pick: fc.nat(1),
    })
    .map(({ from, destination, port, protocol, pick }): Packet => {
      const sources = SOURCES[from][destination.includes(':') ? 'v6' : 'v4'];
      const source = sources[pick % sources.length] ?? '';
      return { from, source, protocol, destination, port };
    }),
  { minLength: 20, maxLength: 40 },
);

/** The portal under test on the kernel of the node, and the one with nftables on a made-up kernel that evaluates. */
function rigs({ exec, kind }: KindLab) {
  const interfaces = () => [...LOCAL].map((address) => ({ address, loopback: false }));
  const options = { interfaces, canary: () => CONTENT };
  const isNft = kind.name === 'nftables';
  const real = new (isNft ? NftablesRig : IptablesRig)({ ...options, exec });
  return { real, thought: new NftablesRig(options) };
}

/** What landings look like to the client. On the node itself, sending a datagram fails when a rule refuses or drops it. */
const LOOKS: Readonly<Record<string, RegExp>> = {
  refused: /^(?:ECONNREFUSED|EPERM)$/,
  dropped: /^(?:silence|EPERM)$/,
  'passed on': /^(?:node|world) /,
};

/** Something answers wherever a packet can come out. */
async function prepare(here: Lab): Promise<void> {
  const both = (place: string, machine: Machine, name: string) =>
    ['TCP', 'UDP'].map((protocol) => machine.serve(`${place}/${protocol}`, name));
  const bracket = (address: string) => (address.includes(':') ? `[${address}]` : address);
  for (const address of FAR) {
    // An address is usable only when the kernel has found no other, unless detection is off.
    const [bits, more] = address.includes(':') ? [128, ['nodad']] : [32, []];
    const args = ['address', 'add', `${address}/${bits}`, 'dev', 'lo', ...more];
    await here.network.inside('world', 'ip', args);
    await Promise.all(
      PORTS.flatMap((port) => both(`${bracket(address)}:${port}`, here.world, 'world')),
    );
  }
  // One socket for each address: UDP answers have to come from where the question went to.
  for (const address of LOCAL) {
    await Promise.all(
      PORTS.flatMap((port) => both(`${bracket(address)}:${port}`, here.node, 'node')),
    );
    for (let n = 0; n < PROXY_PORTS; n += 1) {
      const port = FIRST_PROXY_PORT + n;
      await Promise.all(both(`${bracket(address)}:${port}`, here.node, `proxy ${port}`));
    }
  }
}

testEach('packets land where the model says', ['nftables', 'iptables-nft'], async (t, here) => {
  await prepare(here);
  const { real, thought } = rigs(here);
  t.teardown(async () => Promise.all([real.portal.close(), thought.portal.close()]));
  const machines: Record<Packet['from'], Machine> = {
    outside: here.client,
    pod: here.podA,
    host: here.node,
  };
  let before: readonly string[] = [];
  const seen = new Map<string, number>();
  const property = fc.asyncProperty(services, packets, async (set, sent) => {
    const names = set.map(({ servicePort }) => servicePort);
    const remove = before.filter((name) => !names.includes(name));
    before = names;
    await thought.sync(set, remove);
    await real.sync(set, remove);
    const expected = sent.map((packet) => {
      const end = landing(thought.nft.table().sets, packet, LOCAL);
      return expectedLanding(end, packet);
    });
    const answers = await Promise.all(
      sent.map(({ from, source, destination, port, protocol }, index) => {
        const host = destination.includes(':') ? `[${destination}]` : destination;
        return machines[from].ask(`${host}:${port}/${protocol}`, {
          waitMs: expected[index] === 'dropped' ? 200 : 20_000,
          source,
        });
      }),
    );
    for (const [index, answer] of answers.entries()) {
      const end = expected[index] ?? 'passed on';
      const kind = end.replace(/\d+/, 'N');
      seen.set(kind, (seen.get(kind) ?? 0) + 1);
      if (LOOKS[end]?.test(answer) ?? answer.startsWith(`${end.replace(' port', '')} `)) continue;
      throw new Error(`${JSON.stringify(sent[index])}: expected ${end}, but ${answer}`);
    }
  });
  // Always the same ones: a slow machine takes longer.
  await fc.assert(property, { seed: 1, numRuns: 20, endOnFailure: true });
  t.comment(JSON.stringify(Object.fromEntries(seen)));
  t.same([...seen.keys()].sort(), ['dropped', 'passed on', 'proxy port N', 'refused']);
});

/** A packet that is passed on to a proxy port itself, from the node, is answered there. */
function expectedLanding(end: Landing, packet: Packet): Landing {
  const { port, destination } = packet;
  const direct = end === 'passed on' && port >= FIRST_PROXY_PORT;
  if (!direct) return end;
  return LOCAL.has(destination) ? `proxy port ${port}` : 'refused';
}
