import type { Endpoint } from '../../src/api/generated/localv1/api.ts';
import { ADDRESSES, NODE, STRANGER } from './support/network.ts';
import { testEachKind, type RuleKind } from './support/rule-kinds.ts';
import { everywhere, SERVICE, simple } from './support/services.ts';

/** All places of `everywhere` that another machine may use. */
const PLACES = [
  ...[SERVICE.cluster, SERVICE.external, SERVICE.loadBalancer].flatMap(({ v4, v6 }) => [
    `${v4}:80`,
    `[${v6}]:80`,
    `${v4}:53/UDP`,
    `[${v6}]:53/UDP`,
  ]),
  `${NODE.v4}:${SERVICE.nodePort.TCP}`,
  `[${NODE.v6}]:${SERVICE.nodePort.TCP}`,
  `${NODE.v4}:${SERVICE.nodePort.UDP}/UDP`,
  `[${NODE.v6}]:${SERVICE.nodePort.UDP}/UDP`,
];

testEachKind('a service without endpoints refuses clients until it gets one', async (t, here) => {
  const proxy = here.start();
  await proxy.sync({ 'd/all': everywhere([]) });
  for (const machine of [here.client, here.podA, here.routed, here.node]) {
    const answers = await Promise.all(PLACES.map((place) => machine.ask(place)));
    // On the node, sending a datagram that is refused may fail itself, before the refusal is back.
    const told = answers.map((answer, index) =>
      machine === here.node && PLACES[index]?.endsWith('/UDP') === true
        ? answer.replace('EPERM', 'ECONNREFUSED')
        : answer,
    );
    t.same([...new Set(told)], ['ECONNREFUSED'], machine.name);
  }
  await proxy.sync({ 'd/all': everywhere([ADDRESSES['pod-a'].v4]) });
  for (const machine of [here.client, here.podA, here.routed, here.node]) {
    const answers = await Promise.all(PLACES.map((place) => machine.ask(place)));
    t.same([...new Set(answers.map((each) => each.split(' ')[0]))], ['pod-a'], machine.name);
  }
  const writes = proxy.writes.length;
  await proxy.sync({ 'd/all': everywhere([ADDRESSES['pod-b'].v4]) });
  t.equal(proxy.writes.length, writes, 'one endpoint for another writes no rule');
  t.match(await here.client.ask(PLACES[0] ?? ''), /^pod-b/);
  await proxy.sync({ 'd/all': everywhere([]) });
  t.equal(await here.client.ask(PLACES[0] ?? ''), 'ECONNREFUSED');
});

testEachKind(
  'source ranges let in only their clients, and only on load-balancer addresses',
  async (t, here) => {
    const proxy = here.start();
    const all = everywhere();
    const sourceRanges = ['192.0.2.0/24', '192.0.2.128/25', '2001:db8:1::/120', '198.51.100.0/25'];
    const guarded = { ...all, service: { ...all.service, ipFilters: [{ sourceRanges }] } };
    await proxy.sync({ 'd/all': guarded });
    const { loadBalancer, external, cluster } = SERVICE;
    for (const place of [`${loadBalancer.v4}:80`, `[${loadBalancer.v6}]:80`]) {
      t.match(await here.client.ask(place), /^pod/, place);
      t.match(await here.client.ask(place.replace(/:80$/, ':53/UDP')), /^pod/, `${place}, UDP`);
    }
    const strange = { source: STRANGER.v6 };
    t.equal(await here.client.askInVain(`[${loadBalancer.v6}]:80`, strange), 'silence');
    t.equal(await here.client.askInVain(`[${loadBalancer.v6}]:53/UDP`, strange), 'silence');
    t.equal(await here.podA.askInVain(`${loadBalancer.v4}:80`), 'silence');
    t.match(await here.podA.ask(`${external.v4}:80`), /^pod/);
    t.match(await here.podA.ask(`${cluster.v4}:80`), /^pod/);

    // 198.51.100.9 is inside as long as the range is there.
    t.match(await here.client.ask(`${loadBalancer.v4}:80`, { source: STRANGER.v4 }), /^pod/);
    const narrow = { ...all.service, ipFilters: [{ sourceRanges: ['192.0.2.0/24'] }] };
    await proxy.sync({ 'd/all': { ...all, service: narrow } });
    const source = STRANGER.v4;
    t.equal(await here.client.askInVain(`${loadBalancer.v4}:80`, { source }), 'silence');
    await proxy.sync({ 'd/all': all });
    t.match(await here.client.ask(`${loadBalancer.v4}:80`, { source }), /^pod/);
  },
);

testEachKind(
  'traffic with the policy Local is refused where there is no local endpoint',
  async (t, here) => {
    const proxy = here.start();
    const { cluster, external, nodePort } = SERVICE;
    const away: Partial<Endpoint> = { scopes: { internal: true, external: false } };
    const all = everywhere([{ address: ADDRESSES['pod-a'].v4, more: away }]);
    const local = { ...all.service, externalTrafficToLocal: true };
    await proxy.sync({ 'd/all': { ...all, service: local } });
    t.match(await here.podA.ask(`${cluster.v4}:80`), /^pod-a/);
    t.equal(await here.client.ask(`${external.v4}:80`), 'ECONNREFUSED');
    t.equal(await here.client.ask(`${NODE.v4}:${nodePort.TCP}`), 'ECONNREFUSED');
    await proxy.sync({
      'd/all': { service: local, endpoints: [...all.endpoints, ADDRESSES['pod-b'].v4] },
    });
    const answers = await Promise.all([1, 2, 3, 4].map(() => here.client.ask(`${external.v4}:80`)));
    t.same(
      [...new Set(answers.map((each) => each.split(' ')[0]))],
      ['pod-b'],
      'only the local one',
    );
  },
);

testEachKind('proxy ports cannot be reached directly, except from the node', async (t, here) => {
  await here
    .start()
    .sync({ 'd/web': simple('10.96.0.1', 'TCP 80'), 'd/dns': simple('10.96.0.2', 'UDP 53') });
  const rules = await here.rules();
  const proxyPort = (...place: Parameters<RuleKind['portalOf']>): string =>
    here.kind.portalOf(...place).exec(rules)?.[1] ?? '';
  const places = [
    `${NODE.v4}:${proxyPort('10.96.0.1', 'tcp', 80)}`,
    `${NODE.v4}:${proxyPort('10.96.0.2', 'udp', 53)}/UDP`,
  ];
  for (const place of places) {
    t.equal(await here.client.ask(place), 'ECONNREFUSED', place);
    t.equal(await here.podA.ask(place), 'ECONNREFUSED', place);
    t.match(await here.node.ask(place), /^pod-a/, place);
  }
});
