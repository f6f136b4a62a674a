import { ADDRESSES, NODE } from './support/network.ts';
import { everywhere, SERVICE } from './support/services.ts';
import type { Machine } from './support/machine.ts';
import { ALL_KINDS, testEachKind } from './support/rule-kinds.ts';

/** Every place of the service, by what it is. */
const PLACES: Record<string, readonly string[]> = {
  'the cluster IP': places(SERVICE.cluster, 80, 53),
  'the external IP': places(SERVICE.external, 80, 53),
  'the load-balancer IP': places(SERVICE.loadBalancer, 80, 53),
  'the node port': places(NODE, SERVICE.nodePort.TCP, SERVICE.nodePort.UDP),
  'the node port on the address for pods': places(
    { v4: NODE.pods4, v6: NODE.pods6 },
    SERVICE.nodePort.TCP,
    SERVICE.nodePort.UDP,
  ),
};

function places({ v4, v6 }: { v4: string; v6: string }, tcp: number, udp: number): string[] {
  return [`${v4}:${tcp}`, `[${v6}]:${tcp}`, `${v4}:${udp}/UDP`, `[${v6}]:${udp}/UDP`];
}

/** Asks often enough that both pods have had their turn. */
async function reachesBoth(machine: Machine, place: string): Promise<string> {
  const answers = await Promise.all([1, 2, 3, 4].map(() => machine.ask(place)));
  const pods = new Set(answers.map((answer) => answer.split(' ')[0] ?? ''));
  return [...pods].sort().join(' ');
}

testEachKind(
  'everybody reaches a service on all its addresses, and everything else where it was',
  async (t, here) => {
    const proxy = here.start();
    t.same((await proxy.sync({ 'd/all': everywhere() })).problems, []);
    const who: Record<string, Machine> = {
      'another machine': here.client,
      'a pod that is one of the endpoints': here.podA,
      'a pod behind a wire without addresses': here.routed,
      'the node itself': here.node,
    };
    for (const [name, machine] of Object.entries(who)) {
      for (const [what, list] of Object.entries(PLACES)) {
        for (const place of list) {
          t.equal(await reachesBoth(machine, place), 'pod-a pod-b', `${name}: ${what}, ${place}`);
        }
      }
    }
    const { TCP, UDP } = SERVICE.nodePort;
    for (const place of places({ v4: '127.0.0.1', v6: '::1' }, TCP, UDP)) {
      t.equal(await reachesBoth(here.node, place), 'pod-a pod-b', place);
    }

    await here.node.serve(`${NODE.v4}:9000`, 'node');
    t.match(await here.client.ask(`${NODE.v4}:9000`), /^node/, 'what is not a service');
    t.match(await here.client.ask(`${ADDRESSES['pod-a'].v4}:8080`), `pod-a ${ADDRESSES.client.v4}`);
    t.match(await here.client.ask(`[${ADDRESSES['pod-b'].v6}]:8080/UDP`), /^pod-b/);
    t.equal(await here.client.askInVain(`${SERVICE.cluster.v4}:81`), 'silence');

    // Packets of the node pass the rules only after the kernel has found a route for them.
    await here.network.inside('node', 'ip', ['route', 'delete', 'default']);
    t.equal(await here.node.ask(`${SERVICE.cluster.v4}:80`), 'ENETUNREACH');
    t.match(await here.podA.ask(`${SERVICE.cluster.v4}:80`), /^pod/, 'pods can all the same');
    await here.network.inside('node', 'ip', ['route', 'add', '10.96.0.0/12', 'dev', 'lo']);
    t.match(await here.node.ask(`${SERVICE.cluster.v4}:80`), /^pod/, 'any route will do');
  },
  ALL_KINDS,
);

testEachKind('node ports are open only on the addresses asked for', async (t, here) => {
  const nodePortAddresses = ['192.0.2.0/24', 'localhost'];
  await here.start({ nodePortAddresses }).sync({ 'd/all': everywhere() });
  const { TCP } = SERVICE.nodePort;
  t.match(await here.client.ask(`${NODE.v4}:${TCP}`), /^pod/);
  t.match(await here.node.ask(`127.0.0.1:${TCP}`), /^pod/);
  t.equal(await here.client.ask(`${NODE.pods4}:${TCP}`), 'ECONNREFUSED', 'nobody listens there');
  t.equal(await here.client.ask(`[${NODE.v6}]:${TCP}`), 'ECONNREFUSED');
});
