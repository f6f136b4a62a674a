/** Session affinity: switched while the service is used, timing out, and not to endpoints that are dead. */
import t from 'tap';
import { setTimeout as wait } from 'node:timers/promises';
import { lab, type Lab } from '../support/lab.ts';
import type { Machine } from '../support/machine.ts';
import { ADDRESSES, NODE } from '../support/network.ts';
import { PORTALS, startWith } from '../support/portals-under-test.ts';
import { CLUSTER, NODE_PORTS, pod, service } from '../support/state.ts';
import { Traffic } from '../support/traffic.ts';

const BOTH = [pod('pod-a'), pod('pod-b')];

function affinity(timeoutseconds: number): Record<string, unknown> {
  return { sessionaffinity: { clientip: { timeoutseconds } } };
}

/** The cluster IP and the node port, with who uses it and of both protocols. */
function places(here: Lab): { machine: Machine; place: string }[] {
  return [
    { machine: here.podA, place: `${CLUSTER.v4}:80` },
    { machine: here.routed, place: `[${CLUSTER.v6}]:80` },
    { machine: here.client, place: `${NODE.v4}:${NODE_PORTS.TCP}` },
    { machine: here.client, place: `[${NODE.v6}]:${NODE_PORTS.TCP}` },
    { machine: here.client, place: `${NODE.v4}:${NODE_PORTS.UDP}/UDP` },
  ];
}

/** The pods that eight connections, or sockets, in a row get to. */
async function pods(machine: Machine, place: string): Promise<string> {
  const seen = new Set<string>();
  for (let n = 0; n < 8; n += 1) seen.add((await machine.ask(place)).split(' ')[0] ?? '');
  return [...seen].sort().join(' and ');
}

for (const portal of PORTALS) {
  t.test(
    `${portal.name}: session affinity is switched on and off while clients come`,
    async (t) => {
      const here = await lab(t);
      const program = startWith(t, here, portal);
      for (const round of [1, 2]) {
        await program.serve(service(BOTH));
        for (const { machine, place } of places(here)) {
          t.equal(await pods(machine, place), 'pod-a and pod-b', `${place}, off, round ${round}`);
        }
        await program.serve(service(BOTH, affinity(10_800)));
        for (const { machine, place } of places(here)) {
          t.match(await pods(machine, place), /^pod-[ab]$/, `${place}, on, round ${round}`);
        }
      }
    },
  );
}

// Whatever the portal, the engine remembers clients by their addresses.
const [portal] = PORTALS;

t.test(
  'affinity ends after its timeout, also after an edited one, and with its endpoint',
  async (t) => {
    const here = await lab(t);
    const program = startWith(t, here, portal);
    await program.serve(service(BOTH, affinity(10_800)));
    // One of each family, since clients of one family take turns with the two pods.
    const used = [
      { machine: here.podA, place: `${CLUSTER.v4}:80` },
      { machine: here.client, place: `[${NODE.v6}]:${NODE_PORTS.TCP}` },
    ];
    const first = await Promise.all(used.map(({ machine, place }) => pods(machine, place)));
    await program.serve(service(BOTH, affinity(1)));
    const seen = used.map(() => new Set<string>());
    for (let n = 0; n < 6 && seen.some(({ size }) => size < 2); n += 1) {
      // Longer than the timeout, so each connection is a choice of its own.
      await wait(1100);
      for (const [index, { machine, place }] of used.entries()) {
        seen[index]?.add((await machine.ask(place)).split(' ')[0] ?? '');
      }
    }
    for (const [index, { place }] of used.entries()) {
      const both = [...(seen[index] ?? [])].sort().join(' and ');
      t.equal(both, 'pod-a and pod-b', `${place}: was ${first[index]}`);
    }

    const servers = {
      'pod-a': new Traffic(t, here.network, 'pod-a'),
      'pod-b': new Traffic(t, here.network, 'pod-b'),
    };
    for (const [name, server] of Object.entries(servers)) {
      await server.respond(`${ADDRESSES[name as 'pod-a'].v4}:9000`, name);
    }
    const ports = [
      { name: 'web', protocol: 'TCP', port: 80, nodeport: NODE_PORTS.TCP, targetport: 9000 },
    ];
    await program.serve(service(BOTH, { ports, ...affinity(10_800) }));
    for (const place of [`${CLUSTER.v4}:80`, `${NODE.v4}:${NODE_PORTS.TCP}`]) {
      const before = (await here.client.ask(place)) as 'pod-a' | 'pod-b';
      const other = before === 'pod-a' ? 'pod-b' : 'pod-a';
      // Nobody has noticed yet: it is still among the endpoints.
      await servers[before].stop();
      t.equal(await pods(here.client, place), other, `${place}, ${before} is dead`);
      await servers[before].respond(`${ADDRESSES[before].v4}:9000`, before);
      t.equal(await pods(here.client, place), other, `${place}, stays where it is now`);
    }
  },
);
