import { NODE } from './support/network.ts';
import { testEachKind } from './support/rule-kinds.ts';
import { simple } from './support/proxy.ts';

testEachKind(
  'many UDP ports at once',
  async (t, here) => {
    const proxy = here.start();
    const names = Array.from({ length: 100 }, (_, n) => n);
    const services = Object.fromEntries(
      names.map((n) => [`d/s${n}`, simple(`10.96.1.${n}`, 'UDP 53')]),
    );
    await proxy.sync({});
    for (const n of [3, 42, 99]) {
      await here.client.open(`flow ${n}`, `10.96.1.${n}:53/UDP`);
      t.equal(await here.client.say(`flow ${n}`, 300), 'silence');
    }
    await proxy.sync(services);
    for (const n of [3, 42, 99]) t.match(await here.client.say(`flow ${n}`), /^pod-a/);
    await proxy.sync({}, Object.keys(services));
    t.equal(await here.client.say('flow 42', 300), 'silence');
    await proxy.sync(services);
    for (const n of [3, 42, 99]) t.match(await here.client.say(`flow ${n}`), /^pod-a/);
  },
  ['nftables', 'transparent'],
);

testEachKind(
  'after cleanup, a UDP client is no longer redirected to closed ports',
  async (t, here) => {
    const proxy = here.start();
    await proxy.sync({ 'd/dns': simple('10.96.0.53', 'UDP 53', undefined, { nodePort: 30_053 }) });
    await here.client.open('cluster', '10.96.0.53:53/UDP');
    await here.client.open('node', `${NODE.v4}:30053/UDP`);
    for (const flow of ['cluster', 'node']) t.match(await here.client.say(flow), /^pod-a/);
    await proxy.kill();
    const local = new Set<string>(Object.values(NODE));
    t.equal(await here.kind.cleanUp(here.exec, local), undefined);
    // The next holder of the node port gets what the client sends from the same port.
    await here.node.serve(`${NODE.v4}:30053/UDP`, 'successor');
    t.match(await here.client.say('node'), /^successor/);
    t.notMatch(
      await here.network.inside('node', 'conntrack', ['-L', '-p', 'udp']),
      /10\.96\.0\.53/,
    );
  },
);
