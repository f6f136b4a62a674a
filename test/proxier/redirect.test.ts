import t from 'tap';
import { LINGER_MS } from '../../src/proxier/engine-sync.ts';
import { sharedSocketsName } from '../../src/proxysocket/core/shared-service-ports.ts';
import { listenerFailed, listenerOpened } from '../../src/proxysocket/events.ts';
import { exits } from '../support/fake-exec.ts';
import { listening } from '../support/sockets.ts';
import { endpoint, clusterEntry, entry, ports } from '../support/messages.ts';
import { nftablesRig, type Rig } from '../support/proxier-rig.ts';
import { until } from '../support/until.ts';

const web = (...endpoints: string[]) =>
  clusterEntry('d/web', '10.0.0.1', '- TCP 80 8080', endpoints);

const BUSY = exits('nft is busy');

/** Lets the time pass after which listeners that nothing redirects to are closed. */
async function linger({ clock, again }: Rig) {
  clock.advance(LINGER_MS);
  await again();
}

t.test('rules follow the first and the last endpoint', async (t) => {
  const { rig, nft, lands } = nftablesRig(t);
  const sync = (...endpoints: string[]) =>
    rig.set(clusterEntry('d/web', '10.0.0.1', '- TCP 80 8080@30080', endpoints));
  const all = () => ['10.0.0.1:80', '192.0.2.5:30080', '127.0.0.1:30080'].map((to) => lands(to));
  await sync();
  t.same(all(), ['refused', 'refused', 'refused']);
  await sync('10.1.0.1');
  t.same(all(), ['d/web', 'd/web', 'd/web']);
  for (const other of ['10.0.0.1:80/UDP', '10.0.0.1:81', '192.0.2.9:30080']) {
    t.equal(lands(other), 'passed on');
  }
  const runs = nft.commands.length;
  await sync('10.1.0.1', '10.1.0.2');
  await sync('10.1.0.3');
  t.equal(nft.commands.length, runs, 'other changes of endpoints run no program');
  await sync();
  t.same(all(), ['refused', 'refused', 'refused']);
});

t.test('if clients are held, TCP is admitted without endpoints, and UDP is not', async (t) => {
  const { rig, nft, lands } = nftablesRig(t, { holds: true });
  const dns = (...endpoints: string[]) =>
    clusterEntry('d/dns', '10.0.0.2', '- UDP 53 53', endpoints);
  await rig.set(web(), dns());
  t.equal(lands('10.0.0.1:80'), 'd/web');
  t.equal(lands('10.0.0.2:53/UDP'), 'refused');
  const runs = nft.commands.length;
  await rig.set(web('10.1.0.1'));
  await rig.set(web());
  t.equal(nft.commands.length, runs, 'the first and the last endpoint run no program');
  await rig.set(dns('10.1.0.1'));
  t.equal(lands('10.0.0.2:53/UDP'), 'd/dns');
});

t.test('rules follow when holding begins and ends, and are retried', async (t) => {
  const { rig, nft, lands } = nftablesRig(t);
  await rig.proxier.setPolicy({ holds: true });
  t.equal(nft.commands.length, 0, 'nothing is written before the first state');
  await rig.proxier.setPolicy({ holds: false });
  await rig.set(web());
  t.equal(lands('10.0.0.1:80'), 'refused');
  nft.broken = BUSY;
  await t.rejects(rig.proxier.setPolicy({ holds: true }), { code: 'KPNG_SINK_FAILED' });
  const before = nft.commands.length;
  rig.clock.advance(1000);
  await until(() => nft.commands.length > before);
  await rig.proxier.setPolicy({ holds: true });
  t.equal(lands('10.0.0.1:80'), 'refused');
  nft.broken = undefined;
  rig.clock.advance(2000);
  await until(() => lands('10.0.0.1:80') === 'd/web');
  const runs = nft.commands.length;
  await rig.proxier.setPolicy({ holds: true });
  t.equal(nft.commands.length, runs);
  t.equal(rig.clock.pending, 0, 'nothing is tried any more');
  await rig.proxier.setPolicy({ holds: false });
  t.equal(lands('10.0.0.1:80'), 'refused');
});

t.test('traffic without endpoints here is dropped, but not from the cluster', async (t) => {
  const { rig, lands } = nftablesRig(t);
  const service = {
    ips: { clusterIPs: { v4: ['10.0.0.1'] }, externalIPs: { v4: ['203.0.113.1'] } },
    ports: ports('- TCP 80 8080@30080'),
    externalTrafficToLocal: true,
  };
  const away = endpoint('10.1.0.1', { scopes: { internal: true, external: false } });
  const pod = { from: 'pod', source: '10.1.0.9' } as const;
  await rig.set(entry('d/web', service, { away }));
  t.equal(lands('10.0.0.1:80'), 'd/web');
  t.equal(lands('203.0.113.1:80'), 'dropped');
  t.equal(lands('192.0.2.5:30080'), 'dropped');
  t.equal(lands('203.0.113.1:80', { from: 'host' }), 'd/web');
  t.equal(lands('203.0.113.1:80', pod), 'dropped', 'not known to be a pod');
  await rig.proxier.setPolicy({ podNetworks: ['10.1.0.0/16'] });
  t.equal(lands('203.0.113.1:80', pod), 'd/web');
  t.equal(lands('192.0.2.5:30080', pod), 'd/web');
  const clusterClients = { networks: ['10.1.0.0/16'], traffic: 'internal' };
  const { listeners = [] } = rig.engine.snapshot()[0] ?? {};
  const external = listeners.find(({ listen }) => listen.traffic === 'external');
  t.match(external?.listen, { clusterClients });
  await rig.set(entry('d/web', service, { away, here: endpoint('10.1.0.2') }));
  t.equal(lands('203.0.113.1:80'), 'd/web');
  t.equal(rig.engine.snapshot()[0]?.listeners.length, 3, 'a listener for each kind of traffic');
  rig.engine.tcp.errors.set('::', 'EMFILE');
  const cluster = { ...service, externalTrafficToLocal: false };
  await rig.set(entry('d/web', cluster, { away: endpoint('10.1.0.1') }));
  t.equal(lands('203.0.113.1:80'), 'd/web');
  t.equal(lands('[2001:db8::5]:30080'), 'refused', 'until its new listener opens');
  rig.engine.tcp.errors.clear();
  await rig.engine.retry();
  await until(() => lands('[2001:db8::5]:30080') !== 'refused');
  t.equal(rig.engine.snapshot()[0]?.listeners.length, 4, 'a client may be on its way to any');
  await linger(rig);
  t.equal(rig.engine.snapshot()[0]?.listeners.length, 2, 'one for all traffic');
});

t.test('both policies Local: the cluster gets any endpoint at external addresses', async (t) => {
  const { rig, lands } = nftablesRig(t);
  const service = {
    ips: { clusterIPs: { v4: ['10.0.0.1'] }, externalIPs: { v4: ['203.0.113.1'] } },
    ports: ports('- TCP 80 8080@30080'),
    externalTrafficToLocal: true,
    internalTrafficToLocal: true,
  };
  const scopes = { internal: false, external: false, cluster: true };
  await rig.set(entry('d/web', service, { away: endpoint('10.1.0.1', { scopes }) }));
  t.equal(lands('10.0.0.1:80', { from: 'host' }), 'dropped', 'the cluster IP has its policy');
  t.equal(lands('203.0.113.1:80', { from: 'host' }), 'd/web');
  t.equal(lands('203.0.113.1:80'), 'dropped');
  const [listener] = rig.engine.snapshot()[0]?.listeners ?? [];
  t.match(listener?.listen, { traffic: 'external', clusterClients: { traffic: 'cluster' } });
  await t.test('a server that does not know the scope sends local endpoints only', async (t) => {
    await rig.set(entry('d/web', service, { here: endpoint('10.1.0.2', { local: true }) }));
    t.match(rig.proxier.endpointsOf('d/web'), [{ internal: true, external: true, cluster: true }]);
  });
});

t.test('a first view without services replaces what a previous process has left', async (t) => {
  const { rig, nft } = nftablesRig(t);
  await nft.exec({
    file: 'nft',
    args: ['-f', '-'],
    stdin: `table inet kpng-userspace {
\tmap services4 {
\t}
}
add element inet kpng-userspace services4 {
10.0.0.1 . tcp . 80 : 1
}
`,
  });
  await rig.again();
  t.equal(nft.table().sets.get('services4')?.size, 0);
});

t.test('a proxy port that opens late is redirected to, and its rules are retried', async (t) => {
  for (const reports of [undefined, sharedSocketsName('0.0.0.0')]) {
    // As of a socket that several service ports share.
    const rename = (event: object): unknown =>
      reports && Object.assign(event, { servicePort: reports });
    listening(t, listenerFailed, rename);
    listening(t, listenerOpened, rename);
    const { rig, nft, lands } = nftablesRig(t);
    rig.engine.tcp.errors.set('0.0.0.0', 'EMFILE');
    const other = clusterEntry('d/b', '10.0.0.2', '- TCP 80 1', ['10.1.0.1']);
    await rig.set(web('10.1.0.1'), other);
    t.equal(lands('10.0.0.1:80'), 'refused');
    t.match(rig.messages, [reports ?? 'd/web']);
    nft.broken = BUSY;
    const before = nft.commands.length;
    rig.engine.tcp.errors.clear();
    await rig.engine.retry();
    await until(() => nft.commands.length > before);
    t.equal(lands('10.0.0.1:80'), 'refused');
    nft.broken = undefined;
    await until(() => {
      rig.clock.advance(1000);
      return lands('10.0.0.1:80') === 'd/web' && lands('10.0.0.2:80') === 'd/b';
    });
    t.same(rig.proxier.snapshot().problems, []);
  }
});

t.test('the engine knows which addresses the rules redirect to it, as they change', async (t) => {
  const { rig, lands } = nftablesRig(t);
  const sync = (rows: string) => rig.set(clusterEntry('d/web', '10.0.0.1', rows, ['10.1.0.1']));
  const told = (): unknown =>
    rig.engine.batches
      .at(-1)
      ?.map((change) => (change.kind === 'set' ? (change.spec.portals ?? 'none') : change.kind));
  await sync('- TCP 80 8080@30080');
  t.match(told(), [
    [
      { address: '10.0.0.1', port: 80 },
      { address: undefined, port: 30_080 },
    ],
  ]);
  await sync('- TCP 81 8080');
  t.match(told(), [[{ address: '10.0.0.1', port: 81 }]]);
  const { length } = rig.engine.batches;
  await sync('- TCP 81 8080');
  t.equal(rig.engine.batches.length, length);
  await sync('- UDP 81 8080');
  t.same(told(), ['none'], 'datagrams count their hops');
  t.equal(lands('10.0.0.1:81/UDP'), 'd/web');
});

t.test('rejections by the kernel are reported at once, for as long as they last', async (t) => {
  const { rig, nft, clock, lands } = nftablesRig(t);
  nft.refuses = (element) => element.startsWith('10.0.0.66');
  const sync = (address: string) =>
    rig.set(clusterEntry('d/bad', address, '- TCP 80 8080', ['10.1.0.1']));
  await sync('10.0.0.66');
  const code = 'KPNG_PORTAL_UNSUPPORTED';
  t.strictSame(rig.told, [`appeared ${code} 1`]);
  t.equal(lands('10.0.0.66:80'), 'passed on');
  t.match(rig.proxier.snapshot().problems, [{ code, count: 1, message: /^d\/bad is left out/ }]);
  await sync('10.0.0.67');
  t.equal(lands('10.0.0.67:80'), 'd/bad');
  t.same(rig.proxier.snapshot().problems, []);

  await sync('10.0.0.66');
  nft.refuses = () => false;
  await until(() => {
    clock.advance(1000);
    return lands('10.0.0.66:80') === 'd/bad';
  });
  t.same(rig.proxier.snapshot().problems, [], 'it was retried without a change');
});

/** Other programs hold these ports of every IPv4 address. */
function occupy({ engine }: Rig, ports: readonly number[], protocol = 'TCP'): void {
  const { errors } = protocol === 'TCP' ? engine.tcp : engine.udp;
  for (const port of ports) errors.set(`0.0.0.0:${port}`, 'EADDRINUSE');
}

const numbers = (count: number): number[] => Array.from({ length: count }, (_, n) => n);

for (const protocol of ['TCP', 'UDP'] as const) {
  t.test(`${protocol}: services get other ports than another program holds`, async (t) => {
    const { rig, lands } = nftablesRig(t, { range: { first: 36_000, last: 36_099 } });
    // Some of the first choice, and of the second.
    const taken = [36_000, ...numbers(9).map((n) => 36_098 - n), 36_060, 36_059];
    occupy(rig, taken, protocol);
    const services = numbers(40).map((n) =>
      clusterEntry(`d/s${n}`, `10.96.0.${n}`, `- ${protocol} 80 8080`, ['10.1.0.1']),
    );
    await rig.set(...services);
    t.strictSame(rig.proxier.snapshot().problems, []);
    t.equal(rig.plans, 3, 'a port is replaced once');
    for (const n of numbers(40)) t.equal(lands(`10.96.0.${n}:80/${protocol}`), `d/s${n}`);
  });
}

t.test('where no other port is left, clients are refused until it is free', async (t) => {
  const { rig, lands } = nftablesRig(t, { range: { first: 36_000, last: 36_002 } });
  occupy(rig, [36_000, 36_001, 36_002]);
  await rig.set(web('10.1.0.1'));
  t.equal(lands('10.0.0.1:80'), 'refused');
  t.match(rig.proxier.snapshot().problems, [{ code: 'KPNG_LISTEN_ADDRESS_IN_USE' }]);
  rig.engine.tcp.errors.clear();
  await rig.engine.retry();
  await until(() => lands('10.0.0.1:80') === 'd/web');
  rig.clock.advance(1000);
  t.strictSame(rig.proxier.snapshot().problems, []);
});
