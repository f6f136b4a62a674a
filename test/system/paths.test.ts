import t from 'tap';
import { lab } from './support/lab.ts';
import type { Machine } from './support/machine.ts';
import { ADDRESSES, NODE, STRANGER } from './support/network.ts';
import { ALL_KINDS, type RuleKind, testEachKind } from './support/rule-kinds.ts';
import { everywhere, PLACES, places, reachesBoth, SERVICE, simple } from './support/proxy.ts';

testEachKind(
  'all clients reach a service on all its addresses, and other traffic is unaffected',
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

testEachKind(
  'with --portal-notrack, connection tracking sees no service traffic',
  async (t, here) => {
    // Others do need it.
    await here.kind.addOthers(here.exec);
    await here.start({ notrack: true }).sync({ 'd/all': everywhere() });
    for (const machine of [here.client, here.routed, here.node]) {
      for (const list of Object.values(PLACES)) {
        for (const address of list) {
          t.match(await machine.ask(address), /^pod/, `${machine.name}: ${address}`);
        }
      }
    }
    const flows = await here.network.inside('node', 'sh', [
      '-c',
      'conntrack -L 2>/dev/null; conntrack -L -f ipv6 2>/dev/null',
    ]);
    const { cluster, external, nodePort } = SERVICE;
    for (const text of [cluster.v4, cluster.v6, external.v4, `dport=${nodePort.TCP}`]) {
      t.notOk(flows.includes(`${text} `), text);
    }
    t.match(flows, /dport=8080 /, 'only those to endpoints');
  },
  ['transparent'],
);

testEachKind('node ports are open only on the configured addresses', async (t, here) => {
  const nodePortAddresses = ['192.0.2.0/24', 'localhost'];
  await here.start({ nodePortAddresses }).sync({ 'd/all': everywhere() });
  const { TCP } = SERVICE.nodePort;
  t.match(await here.client.ask(`${NODE.v4}:${TCP}`), /^pod/);
  t.match(await here.node.ask(`127.0.0.1:${TCP}`), /^pod/);
  t.equal(await here.client.ask(`${NODE.pods4}:${TCP}`), 'ECONNREFUSED', 'no one listens there');
  t.equal(await here.client.ask(`[${NODE.v6}]:${TCP}`), 'ECONNREFUSED');
});

/** All addresses of `everywhere` that another machine may use. */
const OUTSIDE = [
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
    const answers = await Promise.all(OUTSIDE.map((place) => machine.ask(place)));
    // On the node, sending a datagram that is refused may fail itself, before the refusal is back.
    const told = answers.map((answer, index) =>
      machine === here.node && OUTSIDE[index]?.endsWith('/UDP') === true
        ? answer.replace('EPERM', 'ECONNREFUSED')
        : answer,
    );
    t.same([...new Set(told)], ['ECONNREFUSED'], machine.name);
  }
  await proxy.sync({ 'd/all': everywhere([ADDRESSES['pod-a'].v4]) });
  for (const machine of [here.client, here.podA, here.routed, here.node]) {
    const answers = await Promise.all(OUTSIDE.map((place) => machine.ask(place)));
    t.same([...new Set(answers.map((each) => each.split(' ')[0]))], ['pod-a'], machine.name);
  }
  const writes = proxy.writes.length;
  await proxy.sync({ 'd/all': everywhere([ADDRESSES['pod-b'].v4]) });
  t.equal(proxy.writes.length, writes, 'one endpoint for another writes no rule');
  t.match(await here.client.ask(OUTSIDE[0] ?? ''), /^pod-b/);
  await proxy.sync({ 'd/all': everywhere([]) });
  t.equal(await here.client.ask(OUTSIDE[0] ?? ''), 'ECONNREFUSED');
});

testEachKind(
  'source ranges admit only their clients, and only on load-balancer addresses',
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
  'proxy ports cannot be reached directly, except from the node',
  async (t, here) => {
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
  },
  ['nftables', 'iptables-nft'],
);

testEachKind(
  'the shared socket serves only what the rules send there',
  async (t, here) => {
    await here.start().sync({ 'd/web': simple('10.96.0.1', 'TCP 80') });
    const port = /listeners4 \{[^}]*tcp : (\d+)/.exec(await here.rules())?.[1] ?? '';
    t.match(await here.client.ask('10.96.0.1:80'), /^pod-a/);
    t.equal(await here.client.ask(`${NODE.v4}:${port}`), 'ECONNREFUSED');
    t.equal(await here.node.ask(`127.0.0.1:${port}`), 'ECONNRESET');
  },
  ['transparent'],
);

t.test('a service that is its own endpoint through the rules costs nothing', async (t) => {
  const here = await lab(t);
  const proxy = here.start();
  const more = { nodePort: 8080 };
  await proxy.sync({
    'd/loop': simple('10.96.0.1', 'TCP 8080', ['10.96.0.1']),
    'd/by-node-port': simple('10.96.0.2', 'TCP 80', [NODE.v4], more),
    'd/in-part': simple('10.96.0.3', 'TCP 8080', ['10.96.0.3', ADDRESSES['pod-a'].v4]),
    'd/good': simple('10.96.0.4', 'TCP 80'),
  });
  const before = await proxy.usage();
  for (const machine of [here.client, here.node]) {
    for (const place of ['10.96.0.1:8080', '10.96.0.2:80']) {
      t.equal(await machine.ask(place), 'ECONNRESET', `${machine.name} at ${place}`);
    }
    for (const place of ['10.96.0.3:8080', '10.96.0.3:8080', '10.96.0.4:80']) {
      t.match(await machine.ask(place), /^pod-a/, `${machine.name} at ${place}`);
    }
  }
  // In a circle, each of four clients would take as many connections as there are descriptors.
  const { user, system } = await proxy.usage();
  const ms = (user + system - before.user - before.system) / 1000;
  t.ok(ms < 700, `${ms} ms of CPU time`);
});
