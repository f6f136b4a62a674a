/** What only sockets of the test can show. */
import t from 'tap';
import { connectFailed, rejected, relayEnded } from '../../../src/proxysocket/events.ts';
import { DEFAULT_LIMITS } from '../../../src/proxysocket/limits.ts';
import { HALF_CLOSE_LOOKS } from '../../../src/proxysocket/tcp/connections.ts';
import type { TcpConnection } from '../../../src/proxysocket/tcp/connection.ts';
import { proxyHeader } from '../../../src/proxysocket/tcp/proxy-protocol.ts';
import type { EndpointSpec, ServicePortSpec } from '../../../src/proxysocket/spec.ts';
import { type FakeDial, FakeHost, listenSpec } from '../../support/fake-host.ts';
import { collect } from '../../support/sockets.ts';
import { endpointAt } from '../../support/tcp-peers.ts';
import { HOUR } from '../../support/tcp-rig.ts';
import { until } from '../../support/until.ts';

async function hostOf(options: Partial<ServicePortSpec> = {}, descriptors = 100_000) {
  const host = new FakeHost({ kind: 'linux', descriptors });
  const endpoints = [endpointAt(1), endpointAt(2)];
  await host.set({ ...listenSpec('a', ['10.0.0.1:80']), endpoints, ...options });
  return host;
}

t.test('an endpoint is not blamed for a lack of descriptors or source ports', async (t) => {
  const events = collect(t, rejected);
  const host = await hostOf();
  const { resets } = host.connect('10.0.0.1', 'EMFILE');
  t.match(host.counters('a'), { connectErrors: { limit: 2 }, rejectedLimit: 1 });
  t.match(host.counters('a'), { rejectedConnectFailed: 0 });
  t.match(events, [{ reason: 'limit' }]);
  t.equal(resets, 1);
  const { failing } = await host.inspect({ maxConnections: 0, failing: true });
  t.equal(failing?.size, 0);
});

t.test('each client takes two descriptors, and the listener one', async (t) => {
  const host = await hostOf({}, 5);
  const clients = [1, 2, 3].map(() => host.connect('10.0.0.1', ''));
  const resets = clients.map((client) => client.resets);
  t.same(resets, [0, 0, 1]);
  t.match(host.counters('a'), { rejectedLimit: 1 });
});

t.test('the client’s address is read only when needed, and once', async (t) => {
  const host = await hostOf();
  t.equal(host.connect('10.0.0.1').asked, 0);
  const affinity = { kind: 'clientIP', timeoutSeconds: 9 } as const;
  t.equal((await hostOf({ affinity })).connect('10.0.0.1').asked, 1);
});

t.test('no endpoint is connected to from an address that a load balancer has named', async (t) => {
  const transparent = [{ address: '10.0.0.1', port: 80 }];
  const listen = [{ address: '127.0.0.1', port: 0, traffic: 'internal', transparent }] as const;
  const endpoints = [endpointAt(1, '203.0.113.10')];
  const named = { address: '198.51.100.7', port: 1 };
  for (const [proxyProtocolFrom, expected] of [
    [['192.0.2.0/24'], undefined],
    [[], '192.0.2.1'],
  ] as const) {
    const host = new FakeHost({ kind: 'linux' });
    const spec = { ...listenSpec('a', listen), endpoints, keepsClients: 'all' } as const;
    await host.set(listenSpec('all', [{ ...listen[0], transparent: [] }]), {
      ...spec,
      proxyProtocolFrom,
    });
    const client = host.connect('10.0.0.1', 'EMFILE', proxyHeader(1, named, named));
    t.equal(client.sources[0], expected);
  }
});

t.test('a client that goes to another endpoint is ended with that attempt', async (t) => {
  const ended = collect(t, relayEnded);
  const host = await hostOf();
  // A client that has had an endpoint is not held.
  await host.setLimits({ holdTimeoutMs: HOUR });
  const other = host.connect('10.0.0.1', '');
  const lost = other.dials[0]?.owner as TcpConnection;
  lost.dialed();
  t.ok(lost.endpointLost(new Error('reset')));
  await host.apply([{ kind: 'endpoints', name: 'a', endpoints: [] }]);
  t.same([other.dials[1]?.log, other.relayed?.log], [['abandon'], ['reset endpoint-reset']]);
  lost.relayEnded('endpoint-reset');
  t.equal(ended.length, 1);
  await host.apply([{ kind: 'endpoints', name: 'a', endpoints: [endpointAt(1), endpointAt(2)] }]);
  const { dials } = host.connect('10.0.0.1', '');
  const connection = dials[0]?.owner as TcpConnection;
  connection.dialed();
  t.ok(connection.endpointLost(new Error('reset')));
  const destroyed = host.destroy();
  await until(() => dials[0]?.log[0] === 'reset destroyed');
  t.same(dials[1]?.log, ['abandon'], 'before its relay has ended');
  connection.relayEnded('destroyed');
  await destroyed;
});

t.test('clients that come while an engine that is destroyed closes are ended, too', async (t) => {
  const places = Array.from({ length: 200 }, (_, index) => `10.0.1.${index}:80`);
  const host = new FakeHost({ kind: 'linux' });
  await host.set({ ...listenSpec('a', places), endpoints: [endpointAt(1)] });
  const { dials } = host.connect('10.0.1.199', '');
  const connection = dials[0]?.owner as TcpConnection;
  connection.dialed();
  const closed = host.close();
  await until(() => host.tcp.log.includes('-10.0.1.0:80'));
  const destroyed = host.destroy();
  await until(() => dials[0]?.log[0] === 'reset destroyed');
  const late = host.connect('10.0.1.199', '');
  t.notOk(host.tcp.log.includes('-10.0.1.199:80'), 'which still listens');
  connection.relayEnded('destroyed');
  await until(() => late.dials[0]?.log[0] === 'abandon');
  await Promise.all([closed, destroyed]);
});

t.test('a half-closed relay may live while the system sends what it has', async (t) => {
  const host = await hostOf();
  const dial = host.connect('10.0.0.1', '').dials[0] as FakeDial;
  const connection = dial.owner as TcpConnection;
  connection.dialed();
  connection.halfClosed();
  const { halfCloseTimeoutMs } = DEFAULT_LIMITS;
  for (let block = 1; block < HALF_CLOSE_LOOKS; block += 1) host.clock.block(halfCloseTimeoutMs);
  t.same(dial.log, [], 'time in which the event loop was blocked does not count');
  for (const queued of [1000, 900, 800, 700, 600]) {
    dial.queued = queued;
    host.clock.advance(halfCloseTimeoutMs * 0.75);
  }
  t.same(dial.log, []);
  host.clock.advance(2 * halfCloseTimeoutMs);
  t.same(dial.log, ['reset half-close-timeout']);
});

t.test('a service that is its own endpoint refuses clients until it is corrected', async (t) => {
  const failed = collect(t, connectFailed);
  const [here, there] = [endpointAt(80, '10.0.0.1'), endpointAt(80, '10.0.0.2')];
  const host = await hostOf({ endpoints: [here] });
  t.same(host.connect('10.0.0.1', '').dials, []);
  t.match(failed, [
    {
      endpoint: '10.0.0.1:80',
      cause: 'loop',
      error: { code: 'KPNG_ENDPOINT_LOOP', servicePort: 'a', message: /itself/ },
    },
  ]);
  t.match(host.counters('a'), { connections: 1, connectErrors: { loop: 1 }, active: 0 });
  t.match(host.counters('a'), { rejectedConnectFailed: 1 });
  const { failing } = await host.inspect({ maxConnections: 0, failing: true });
  t.equal(failing?.size, 1, 'any other endpoint would be preferred');

  // The address passes to another service; the endpoint is the same.
  const moved = { ...listenSpec('a', ['10.0.0.3:80']), endpoints: [here] };
  await host.set(moved, listenSpec('b', ['10.0.0.1:80']));
  t.equal(host.connect('10.0.0.3', '').dials.length, 1);

  // Packet rules that redirect an endpoint to the service.
  await host.set({ ...moved, endpoints: [there], portals: [there] });
  t.same(host.connect('10.0.0.3', '').dials, []);
  await host.set({ ...moved, endpoints: [there] });
  t.equal(host.connect('10.0.0.3', '').dials.length, 1);
});

t.test('clients in the networks of pods get the traffic of the cluster', async (t) => {
  const clusterClients = { networks: ['192.0.2.0/24'], traffic: 'cluster' } as const;
  const listen = [{ address: '10.0.0.1', port: 80, traffic: 'external', clusterClients }] as const;
  const inCluster = { ...endpointAt(3), external: false, cluster: true };
  const host = await hostOf({ listen, endpoints: [endpointAt(1), endpointAt(2), inCluster] });
  const endpoints = host.connect('10.0.0.1', '').dials.map(({ endpoint }) => endpoint.port);
  t.same(endpoints, [3]);
});

t.test('T5 (different): attempts of 250, 500, 1000 and 2000 ms, then the end', async (t) => {
  const host = await hostOf({ endpoints: [endpointAt(1)] });
  // Different: the second client is looked at while the first one waits.
  const clients = [1, 2].map(() => host.connect('10.0.0.1', ''));
  const attempts = () => clients.map(({ dials }) => dials.length);
  for (const [index, ms] of [250, 500, 1000, 2000].entries()) {
    host.clock.advance(ms - 1);
    t.same(attempts(), [index + 1, index + 1]);
    host.clock.advance(1);
  }
  for (const { dials, resets } of clients) {
    t.equal(resets, 1);
    t.ok(dials.every(({ log }) => log[0] === 'abandon'));
  }
  t.match(host.counters('a'), { connectErrors: { timeout: 8 }, rejectedConnectFailed: 2 });
  t.equal(host.clock.pending, 0, 'no timer is left');
});

t.test('an endpoint that is removed during the connect is replaced by another', async (t) => {
  const host = await hostOf({ endpoints: [endpointAt(1)] });
  const client = host.connect('10.0.0.1', '');
  const { dials } = client;
  const setEndpoints = (...endpoints: EndpointSpec[]) =>
    host.apply([{ kind: 'endpoints', name: 'a', endpoints }]);
  await setEndpoints(endpointAt(2));
  t.same(dials[0]?.log, ['abandon']);
  t.equal(dials[1]?.endpoint.port, 2);
  host.clock.advance(200);
  t.match(host.counters('a'), { retries: 0, connectErrors: { timeout: 0 }, connections: 1 });
  await setEndpoints();
  t.equal(client.resets, 1, 'without another one the client is reset');
  t.match(host.counters('a'), { rejectedNoEndpoint: 1 });
});

t.test('an endpoint fails until a connect succeeds, however much time passes', async (t) => {
  const host = await hostOf({ endpoints: [endpointAt(1)] });
  const failing = async (): Promise<string[]> => {
    const found = await host.inspect({ failing: true, maxConnections: 0 });
    return [...(found.failing?.get('a') ?? [])];
  };
  t.strictSame(await failing(), []);
  host.connect('10.0.0.1');
  t.strictSame(await failing(), ['127.0.0.1:1']);
  host.clock.advance(24 * HOUR);
  t.strictSame(await failing(), ['127.0.0.1:1'], 'a day without clients');
  host.connect('10.0.0.1', '').dials[0]?.owner.dialed();
  t.strictSame(await failing(), []);
  host.connect('10.0.0.1');
  await host.set({ ...listenSpec('a', ['10.0.0.1:80']), endpoints: [endpointAt(2)] });
  t.strictSame(await failing(), [], 'a new endpoint has no record');
});

t.test('relays of a removed endpoint continue, or end after the grace period', async (t) => {
  for (const endpointGraceMs of [0, 5000]) {
    const host = await hostOf();
    const relays = [1, 2].flatMap(() => host.connect('10.0.0.1', '').dials);
    for (const { owner } of relays) owner.dialed();
    const [first, second] = relays;
    await host.setLimits({ endpointGraceMs });
    const endpoints = [endpointAt(second?.endpoint.port ?? 0)];
    await host.apply([{ kind: 'endpoints', name: 'a', endpoints }]);
    host.clock.advance(4999);
    t.same(first?.log, []);
    host.clock.advance(1);
    t.same(first?.log, endpointGraceMs === 0 ? [] : ['reset endpoint-gone']);
    t.same(second?.log, []);
  }
});

const REFUSES = 3;
const TIMEOUT_MS = 100;

/** The ports of the endpoints that a client gets whose attempts all fail, most of them by a time-out. */
async function order(
  endpoints: number,
  attempts: number,
  refuses: readonly number[],
): Promise<number[]> {
  const host = new FakeHost();
  const all = Array.from({ length: endpoints }, (_, index) => endpointAt(index + 1));
  await host.setLimits({ connectTimeoutsMs: Array(attempts).fill(TIMEOUT_MS) as number[] });
  await host.set({ ...listenSpec('a', ['10.0.0.1:80']), endpoints: all });
  const { dials } = host.connect('10.0.0.1', '');
  for (const { endpoint, owner } of dials) {
    if (refuses.includes(endpoint.port)) owner.dialFailed(new Error('refused'));
    else host.clock.advance(TIMEOUT_MS);
  }
  return dials.map(({ endpoint }) => endpoint.port);
}

t.test('the order in which endpoints are tried', async (t) => {
  const all = await order(4, 4, []);
  t.same(new Set(all), new Set([1, 2, 3, 4]), 'each attempt takes an untried one');

  const rounds = await order(3, 7, [REFUSES]);
  t.same(new Set(rounds.slice(0, 3)), new Set([1, 2, 3]), 'while there is one');
  // Then those that timed out, but not one that refused; and again.
  for (const from of [3, 5]) t.same(new Set(rounds.slice(from, from + 2)), new Set([1, 2]));
  t.equal(rounds.length, 7);

  t.equal((await order(3, 4, [1, 2, 3])).length, 3, 'none is left when all have refused');
  t.same(await order(1, 3, []), [1, 1, 1], 'a single one is tried in each attempt');
  t.same(await order(0, 4, []), []);
});
