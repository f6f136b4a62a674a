import { ADDRESSES, NODE } from './support/network.ts';
import { testEachKind } from './support/rule-kinds.ts';
import { simple } from './support/proxy.ts';

/** A client that keeps sending from the same port, as resolvers and log shippers do. */
testEachKind('a UDP client follows its service through every change', async (t, here) => {
  const proxy = here.start();
  const dns = simple('10.96.0.53', 'UDP 53');
  const place = '10.96.0.53:53/UDP';

  await proxy.sync({});
  await here.client.open('early', place);
  t.equal(await here.client.say('early', 300), 'silence', 'before there is a service');
  await proxy.sync({ 'd/dns': dns });
  t.match(await here.client.say('early'), /^pod-a/, 'when it comes');

  await proxy.sync({ 'd/dns': { ...dns, endpoints: [] } });
  t.equal(await here.client.say('early'), 'ECONNREFUSED', 'when it loses its last endpoint');
  await proxy.sync({ 'd/dns': { ...dns, endpoints: [ADDRESSES['pod-b'].v4] } });
  t.match(await here.client.say('early'), /^pod-b/, 'when it has one again');

  await proxy.sync({ 'd/other': dns }, ['d/dns']);
  t.match(await here.client.say('early'), /^pod-a/, 'when it belongs to another service');

  await proxy.sync({}, ['d/other']);
  t.equal(await here.client.say('early', 300), 'silence', 'when it is gone');
  await proxy.sync({ 'd/dns': dns });
  t.match(await here.client.say('early'), /^pod-a/, 'when it is back');
  t.notMatch(proxy.events, [{ channel: 'kpng-userspace:portal:flows-not-cleared' }]);
});

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
