/** The portal `address` with an interface: service addresses on the node itself, without any rule. */
import t from 'tap';
import { removeInterfaceAddresses } from '../../src/portal/interface/linux.ts';
import { until } from '../support/until.ts';
import { lab, type Lab } from './support/lab.ts';
import type { Machine } from './support/machine.ts';
import { ADDRESSES, NODE, STRANGER } from './support/network.ts';
import { type Proxy, everywhere, PLACES, reachesBoth, SERVICE, simple } from './support/proxy.ts';

const WEB = `${SERVICE.cluster.v4}:80`;

/** Starts a proxy that adds addresses to an interface of its own, or of others. */
function start(here: Lab, more: { portalInterface?: string; nodePortAddresses?: string[] } = {}) {
  return here.start({ portal: 'address', portalInterface: 'kpng0', ...more });
}

async function ip(here: Lab, command: string): Promise<string> {
  return here.network.inside('node', 'ip', command.split(' '));
}

function repairs(proxy: Proxy): number {
  return proxy.writes.filter((reason) => reason === 'repair').length;
}

t.test('all clients reach a service on all its addresses, without rules', async (t) => {
  const here = await lab(t);
  const proxy = start(here);
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
  t.equal(await here.ruleset(), '');
  const flows = await here.network.inside('node', 'sh', [
    '-c',
    'cat /proc/net/nf_conntrack || true',
  ]);
  t.notMatch(flows, /10\.96\.0\.10/, 'connection tracking does not know of it');
  t.match(await here.client.ask(`${ADDRESSES['pod-a'].v4}:8080`), `pod-a ${ADDRESSES.client.v4}`);
});

t.test('service addresses are never the source of what the node sends elsewhere', async (t) => {
  const here = await lab(t);
  await start(here, { portalInterface: 'lo' }).sync({ 'd/all': everywhere() });
  for (const pod of ['pod-a', 'routed'] as const) {
    const { v4, v6 } = ADDRESSES[pod];
    for (const address of [v4, v6]) {
      const route = await ip(here, `route get ${address}`);
      const source = / src (\S+)/.exec(route)?.[1] ?? '';
      t.ok(Object.values(NODE).includes(source as never), `${pod} ${address}: from ${source}`);
    }
  }
});

t.test('source ranges admit only their clients', async (t) => {
  const here = await lab(t);
  const proxy = start(here);
  const all = everywhere();
  const sourceRanges = ['192.0.2.0/24', '2001:db8:1::/120'];
  await proxy.sync({
    'd/all': { ...all, service: { ...all.service, ipFilters: [{ sourceRanges }] } },
  });
  const { loadBalancer, external } = SERVICE;
  t.match(await here.client.ask(`${loadBalancer.v4}:80`), /^pod/);
  t.match(await here.client.ask(`[${loadBalancer.v6}]:53/UDP`), /^pod/);
  const refused = /^(?:ECONNRESET|closed)$/;
  t.match(await here.client.ask(`${loadBalancer.v4}:80`, { source: STRANGER.v4 }), refused);
  t.match(await here.client.ask(`[${loadBalancer.v6}]:80`, { source: STRANGER.v6 }), refused);
  t.equal(
    await here.client.askInVain(`[${loadBalancer.v6}]:53/UDP`, { source: STRANGER.v6 }),
    'silence',
  );
  t.match(await here.podA.ask(`${loadBalancer.v4}:80`), refused);
  t.match(await here.podA.ask(`${external.v4}:80`), /^pod/);
});

t.test('an address or port that moves to another service is never refused', async (t) => {
  const here = await lab(t);
  const proxy = start(here);
  const web = simple('10.96.0.1', 'TCP 80');
  await proxy.sync({ 'd/web': web });
  const answers = new Set<string>();
  const stop = new AbortController();
  const asking = Promise.all(
    [1, 2, 3].map(async () => {
      while (!stop.signal.aborted) answers.add(await here.client.ask('10.96.0.1:80'));
    }),
  );
  await proxy.sync({ 'd/other': web }, ['d/web']);
  await proxy.sync({ 'd/web': web }, ['d/other']);
  await proxy.sync({ 'd/web': simple('10.96.0.1', 'TCP 80', undefined, { name: 'http' }) });
  stop.abort();
  await asking;
  t.match([...answers], [/^pod-a/], [...answers].join(' '));
  t.equal(answers.size, 1);
});

t.test('connections outlive the deletion of their service; its address goes later', async (t) => {
  const here = await lab(t);
  const proxy = start(here);
  await proxy.sync({
    'd/web': simple('10.96.0.1', 'TCP 80'),
    'd/idle': simple('10.96.0.2', 'TCP 80'),
  });
  await here.client.open('kept', '10.96.0.1:80');
  t.match(await here.client.say('kept'), /^pod-a/);
  await proxy.sync({}, ['d/web', 'd/idle']);
  t.match(await here.client.say('kept'), /^pod-a/);
  t.equal(await here.client.ask('10.96.0.1:80'), 'ECONNREFUSED', 'new ones are refused');
  t.equal(await here.client.askInVain('10.96.0.2:80'), 'silence', 'that address is gone');
  await here.client.close('kept');
  const removed = () => proxy.events.reduce((sum, { removed: count = 0 }) => sum + count, 0);
  await until(() => removed() === 2);
  t.equal(await here.client.askInVain('10.96.0.1:80'), 'silence');
});

t.test('addresses that another program removes are back within a second', async (t) => {
  const here = await lab(t);
  const proxy = start(here);
  await proxy.sync({ 'd/all': everywhere() });
  const harm = [
    'address flush dev kpng0',
    `address delete ${SERVICE.external.v4}/32 dev kpng0`,
    `-6 address delete ${SERVICE.cluster.v6}/128 dev kpng0`,
    'link set dev kpng0 down',
    'link delete dev kpng0',
  ];
  for (const command of harm) {
    const before = repairs(proxy);
    const begin = performance.now();
    await ip(here, command);
    await until(() => repairs(proxy) > before);
    const ms = Math.round(performance.now() - begin);
    t.ok(ms < 1500, `ip ${command}: repaired after ${ms} ms`);
    for (const place of PLACES['the external IP'] ?? []) {
      t.match(await here.client.ask(place), /^pod/, place);
    }
    t.match(await here.podB.ask(`[${SERVICE.cluster.v6}]:80`), /^pod/);
  }
});

t.test('after kill -9 the addresses stay, for a new process or for cleanup', async (t) => {
  const here = await lab(t);
  for (const portalInterface of ['kpng0', 'lo', 'eth1', 'bridge']) {
    const before = await here.state();
    const first = start(here, { portalInterface });
    await first.sync({ 'd/all': everywhere(), 'd/old': simple('10.96.0.66', 'TCP 80') });
    await first.kill();
    t.match(await ip(here, `address show dev ${portalInterface}`), '10.96.0.66/32');
    t.equal(await here.client.ask(WEB), 'ECONNREFUSED', 'no one answers, and the client learns it');
    await ip(here, `address add 10.96.0.77/32 dev ${portalInterface}`);

    const second = start(here, { portalInterface });
    const more = { 'd/all': everywhere(), 'd/foreign': simple('10.96.0.77', 'TCP 80') };
    t.same((await second.sync(more)).problems, []);
    t.match(await here.client.ask(WEB), /^pod/);
    t.match(await here.client.ask('10.96.0.77:80'), /^pod/);
    t.equal(await here.client.askInVain('10.96.0.66:80'), 'silence', 'what is not wanted is gone');
    await second.sync({}, ['d/all', 'd/foreign']);
    t.match(await ip(here, `address show dev ${portalInterface}`), '10.96.0.77/32');

    await second.sync({ 'd/all': everywhere() });
    await second.kill();
    await ip(here, `address delete 10.96.0.77/32 dev ${portalInterface}`);
    t.same(await removeInterfaceAddresses(here.exec), [portalInterface]);
    t.equal(await here.state(), before, portalInterface);
    t.same(await removeInterfaceAddresses(here.exec), []);
  }
});

t.test('the node’s own addresses are used and left alone', async (t) => {
  const here = await lab(t);
  const proxy = start(here);
  const before = await ip(here, '-o address show dev eth0');
  await proxy.sync({ 'd/web': simple(NODE.v4, 'TCP 80'), 'd/six': simple(NODE.v6, 'TCP 80') });
  t.match(await here.client.ask(`${NODE.v4}:80`), /^pod-a/);
  t.notMatch(await ip(here, 'address show dev kpng0'), NODE.v4);
  await proxy.sync({}, ['d/web', 'd/six']);
  t.equal(await ip(here, '-o address show dev eth0'), before);
});

t.test('node ports are not opened on service addresses', async (t) => {
  const here = await lab(t);
  const proxy = start(here, { nodePortAddresses: ['10.0.0.0/8', '192.0.2.0/24'] });
  await proxy.sync({ 'd/all': everywhere(), 'd/two': simple('10.96.0.20', 'TCP 80') });
  await proxy.sync({ 'd/all': everywhere(), 'd/three': simple('10.96.0.30', 'TCP 80') });
  const { TCP, UDP } = SERVICE.nodePort;
  t.match(await here.client.ask(`${NODE.v4}:${TCP}`), /^pod/);
  t.match(await here.podA.ask(`${NODE.pods4}:${UDP}/UDP`), /^pod/);
  t.equal(await here.client.ask(`10.96.0.20:${TCP}`), 'ECONNREFUSED');
  t.equal(await here.client.ask(`${NODE.v6.replace(/.*/, '[$&]')}:${TCP}`), 'ECONNREFUSED');
});
