/** What only sockets of the test can show. */
import t from 'tap';
import { rejected } from '../../../src/proxysocket/events.ts';
import { DEFAULT_LIMITS } from '../../../src/proxysocket/limits.ts';
import type { TcpConnection } from '../../../src/proxysocket/tcp/connection.ts';
import { proxyHeader } from '../../../src/proxysocket/tcp/proxy-protocol.ts';
import type { ServicePortSpec } from '../../../src/proxysocket/spec.ts';
import { type FakeDial, FakeHost, listenSpec } from '../../support/fake-host.ts';
import { collect } from '../../support/sockets.ts';
import { endpointAt } from '../../support/tcp-peers.ts';
import { until } from '../../support/until.ts';

async function hostOf(
  options: Partial<ServicePortSpec> = {},
  descriptors?: number,
): Promise<FakeHost> {
  const host = new FakeHost({ kind: 'linux', ...(descriptors && { descriptors }) });
  const endpoints = [endpointAt(1), endpointAt(2)];
  await host.set({ ...listenSpec('a', ['10.0.0.1:80']), endpoints, ...options });
  return host;
}

t.test('an endpoint is not blamed for a lack of descriptors or source ports', async (t) => {
  const events = collect(t, rejected);
  const host = await hostOf();
  const { resets } = host.connect('10.0.0.1', 'EMFILE');
  t.match(host.counters('a'), {
    connectErrors: { limit: 2 },
    rejectedLimit: 1,
    rejectedConnectFailed: 0,
  });
  t.match(events, [{ reason: 'limit' }]);
  t.equal(resets, 1);
  const { failing } = await host.engine.inspect({ maxConnections: 0, failing: true });
  t.equal(failing?.size, 0);
});

t.test('each client takes two descriptors, and the listener one', async (t) => {
  const host = await hostOf({}, 5);
  const clients = [1, 2, 3].map(() => host.connect('10.0.0.1', ''));
  t.same(
    clients.map(({ resets }) => resets),
    [0, 0, 1],
  );
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
  const host = await hostOf();
  const { dials } = host.connect('10.0.0.1', '');
  const connection = dials[0]?.owner as TcpConnection;
  connection.dialed();
  t.ok(connection.endpointLost(new Error('reset')));
  const destroyed = host.engine.destroy();
  await until(() => dials[0]?.log[0] === 'reset destroyed');
  t.same(dials[1]?.log, ['abandon'], 'before its relay has ended');
  connection.relayEnded('destroyed');
  await destroyed;
});

t.test('a half-closed relay may live while the system sends what it has', async (t) => {
  const host = await hostOf();
  const dial = host.connect('10.0.0.1', '').dials[0] as FakeDial;
  const connection = dial.owner as TcpConnection;
  connection.dialed();
  connection.halfClosed();
  const { halfCloseTimeoutMs } = DEFAULT_LIMITS;
  for (const queued of [1000, 900, 800, 700, 600]) {
    dial.queued = queued;
    host.clock.advance(halfCloseTimeoutMs * 0.75);
  }
  t.same(dial.log, []);
  host.clock.advance(2 * halfCloseTimeoutMs);
  t.same(dial.log, ['reset half-close-timeout']);
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
  await host.engine.setLimits({ connectTimeoutsMs: Array(attempts).fill(TIMEOUT_MS) as number[] });
  await host.set({ ...listenSpec('a', ['10.0.0.1:80']), endpoints: all });
  const { dials } = host.connect('10.0.0.1', '');
  for (const { endpoint, owner } of dials) {
    if (refuses.includes(endpoint.port)) owner.dialFailed(new Error('refused'));
    else host.clock.advance(TIMEOUT_MS);
  }
  return dials.map(({ endpoint }) => endpoint.port);
}

function sorted(ports: readonly number[]): number[] {
  return [...ports].sort((one, other) => one - other);
}

t.test('the order in which endpoints are tried', async (t) => {
  const all = await order(4, 4, []);
  t.same(sorted(all), [1, 2, 3, 4], 'each attempt takes an untried one');

  const rounds = await order(3, 7, [REFUSES]);
  t.same(sorted(rounds.slice(0, 3)), [1, 2, 3], 'while there is one');
  t.same(sorted(rounds.slice(3, 5)), [1, 2], 'then those that timed out, but not one that refused');
  t.same(sorted(rounds.slice(5)), [1, 2], 'and again');

  t.equal((await order(3, 4, [1, 2, 3])).length, 3, 'none is left when all have refused');
  t.same(await order(1, 3, []), [1, 1, 1], 'a single one is tried in each attempt');
  t.same(await order(0, 4, []), []);
});
