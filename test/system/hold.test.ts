/** Who is let in to wait for an endpoint, and who is not. */
import { eventually } from '../support/until.ts';
import { NODE } from './support/network.ts';
import { PORTALS, testEach } from './support/kinds.ts';
import { CLUSTER, INTERNAL, NODE_PORTS, OUTSIDE, pod, service } from './support/services.ts';

const DATAGRAMS = [`${CLUSTER.v4}:53/UDP`, `${NODE.v4}:${NODE_PORTS.UDP}/UDP`];
const LONG = { waitMs: 60_000 };

// Both kinds of rules learn in the same way whom to let in.
const KINDS = PORTALS.filter((name) => name !== 'iptables-nft');

testEach('clients wait for an endpoint that they may use', KINDS, async (t, net) => {
  const program = net.start({ flags: '--hold-timeout=1m' });
  const held = () => program.metric('connections_held', { service: 'web', port: 'web' });
  const areHeld = (count: number) => eventually(async () => (await held()) === count);
  const away = pod('pod-b', { node: 'elsewhere' });
  const local = { externaltraffictolocal: true };
  for (const [places, without, endpoints] of [
    [OUTSIDE, service([away], local), [away, pod('pod-a')]],
    [[...INTERNAL, ...OUTSIDE], service([], local), [pod('pod-a')]],
  ] as const) {
    await program.serve(without);
    const waiting = Promise.all(places.map((place) => net.client.ask(place, LONG)));
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
