/** What redirects external IPs to endpoints without the proxy, with real rules and packets. */
import t from 'tap';
import { eventually } from '../support/until.ts';
import { lab } from './support/lab.ts';
import { ADDRESSES } from './support/network.ts';
import { Program } from './support/program.ts';
import { EXTERNAL, places, pod, service } from './support/services.ts';

t.test('to-extip: clients reach endpoints, which speak from the external IP', async (t) => {
  const here = await lab(t);
  const ask = () => here.client.askInVain(`${EXTERNAL.v4}:80`);
  for (const [flavor, port] of [
    ['nft', 7001],
    ['legacy', 7002],
  ] as const) {
    const program = new Program(t, here.network, {
      backend: 'to-extip',
      flags: `--iptables-flavor=${flavor}`,
      state: [service([pod('pod-a')])],
    });
    await program.ready();
    await here.sh(`for tool in iptables-${flavor} ip6tables-${flavor}; do
      $tool -A FORWARD -j k8s-forward
      $tool -t nat -A PREROUTING -j k8s-DNAT
      $tool -t nat -A POSTROUTING -j k8s-SNAT
    done`);
    for (const place of places(EXTERNAL, 80, 53)) {
      t.match(await here.client.ask(place), /^pod-a /, `${flavor} ${place}`);
    }
    const world = `${ADDRESSES.world.v4}:${port}`;
    await here.world.serve(world, 'world');
    t.equal(await here.podA.ask(world), `world ${EXTERNAL.v4}`);
    await program.serveSame(service([pod('pod-b')]));
    t.ok(await eventually(async () => (await ask()).startsWith('pod-b ')), 'a change');
    await program.serveSame();
    t.ok(await eventually(async () => !(await ask()).startsWith('pod')), 'nothing is left');
    t.equal(await program.end('SIGTERM'), 0);
  }
});
