import t from 'tap';
import { ProcessDescriptors } from '../../../src/proxysocket/core/descriptors.ts';
import { LoopGuard } from '../../../src/proxysocket/core/loop-guard.ts';
import { newCounters } from '../../../src/proxysocket/counters.ts';
import { rejected } from '../../../src/proxysocket/events.ts';
import { DEFAULT_LIMITS } from '../../../src/proxysocket/limits.ts';
import { TcpConnection } from '../../../src/proxysocket/tcp/connection.ts';
import { createTcpShared } from '../../../src/proxysocket/tcp/shared.ts';
import type { DialOwner, TcpClient, TcpTransport } from '../../../src/proxysocket/tcp/transport.ts';
import { RoundRobinBalancer } from '../../../src/roundrobin/balancer.ts';
import type { BalancerEndpoint } from '../../../src/roundrobin/types.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { collect } from '../../support/sockets.ts';
import { endpointAt } from '../../support/tcp-peers.ts';

/** Records which endpoints are skipped. */
class Watched extends RoundRobinBalancer {
  readonly blamed: string[] = [];

  override connectFailed(endpoint: BalancerEndpoint): void {
    this.blamed.push(endpoint.text);
    super.connectFailed(endpoint);
  }
}

const TRANSPORT: TcpTransport = {
  listen: () => Promise.reject(new Error('not here')),
  afterSockets: setImmediate,
  destroy: async () => undefined,
};

function setUp() {
  const clock = new FakeClock();
  const descriptors = new ProcessDescriptors({ limit: 100, reserve: 0 });
  const limits = { ...DEFAULT_LIMITS, connectTimeoutsMs: [250, 250, 250] };
  const shared = createTcpShared({ limits, clock, descriptors }, TRANSPORT, new LoopGuard(clock));
  const affinity = { kind: 'none' } as const;
  const balancer = new Watched({ clock, random: () => 0.99, affinity, maxAffinityClients: 1 });
  balancer.update([endpointAt(1), endpointAt(2)]);
  const counters = newCounters();
  const owner = {
    name: 'ns/s:p',
    protocol: 'TCP',
    balancer,
    counters,
    udpIdleTimeoutMs: 0,
  } as const;
  const dials: DialOwner[] = [];
  let asked = 0;
  let resets = 0;
  const client: TcpClient = {
    remoteAddress() {
      asked += 1;
      return { address: '::ffff:10.0.0.9', port: 1234 };
    },
    localAddress: () => ({}),
    reset: () => (resets += 1),
    hold: () => undefined,
    release: () => undefined,
    dial(_endpoint, dialOwner) {
      dials.push(dialOwner);
      return {
        localAddress: () => ({}),
        abandon: () => undefined,
        join() {
          throw new Error('there is no endpoint to relay to');
        },
      };
    },
  };
  const connection = new TcpConnection(shared, client, { owner, traffic: 'internal', family: 4 });
  shared.gate.enter();
  return {
    shared,
    balancer,
    counters,
    connection,
    asked: () => asked,
    resets: () => resets,
    /** Lets the running attempt fail as the system would. */
    fail: (code: string): void => {
      dials.at(-1)?.dialFailed(Object.assign(new Error(code), { code }));
    },
  };
}

t.test('an endpoint is not blamed for a lack of descriptors or source ports', async (t) => {
  const events = collect(t, rejected);
  const { connection, balancer, counters, shared, resets, fail } = setUp();
  connection.start();
  fail('EMFILE');
  fail('EMFILE');
  t.same(balancer.blamed, []);
  t.match(counters, { connectErrors: { limit: 2 }, rejectedLimit: 1, rejectedConnectFailed: 0 });
  t.match(events, [{ reason: 'limit' }]);
  t.equal(resets(), 1);
  t.equal(shared.gate.inside, 0);
});

t.test('one that refuses is', async (t) => {
  const { connection, balancer, counters, fail } = setUp();
  connection.start();
  fail('ECONNREFUSED');
  fail('ECONNREFUSED');
  t.same(balancer.blamed, ['127.0.0.1:1', '127.0.0.1:2']);
  t.match(counters, { connectErrors: { refused: 2 }, rejectedConnectFailed: 1, rejectedLimit: 0 });
});

t.test('the client is asked for its address only when needed, and once', async (t) => {
  const { connection, asked } = setUp();
  connection.start();
  t.equal(asked(), 0);
  t.equal(connection.client, '10.0.0.9');
  t.equal(connection.client, '10.0.0.9');
  t.equal(asked(), 1);
  connection.destroy();
});

t.test('what is over stays over', async (t) => {
  const { connection, shared, resets } = setUp();
  connection.start();
  connection.destroy();
  connection.destroy();
  connection.endpointGone();
  connection.graceOver();
  t.equal(resets(), 1);
  t.equal(shared.gate.inside, 0);
  t.same(shared.index.all(), []);
});
