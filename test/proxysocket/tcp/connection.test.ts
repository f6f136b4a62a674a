import { ProcessDescriptors } from '../../../src/proxysocket/core/descriptors.ts';
import { addressText, clientAddress } from '../../../src/proxysocket/tcp/publish.ts';
import { connectErrorCause } from '../../../src/proxysocket/tcp/attempts.ts';
import { TcpShared } from '../../../src/proxysocket/tcp/shared.ts';
import { LoopGuard } from '../../../src/proxysocket/core/loop-guard.ts';
import { rejected, limitChanged } from '../../../src/proxysocket/events.ts';
import { DEFAULT_LIMITS } from '../../../src/proxysocket/limits.ts';
import { TcpConnection, type Origin } from '../../../src/proxysocket/tcp/connection.ts';
import type {
  DialOwner,
  KnownAddress,
  TcpClient,
  TcpTransport,
} from '../../../src/proxysocket/tcp/transport.ts';
import { RoundRobinBalancer } from '../../../src/roundrobin/balancer.ts';
import type { BalancerEndpoint } from '../../../src/roundrobin/types.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { collect } from '../../support/sockets.ts';
import { endpointAt } from '../../support/tcp-peers.ts';
import { newCounters, type RejectReason } from '../../../src/proxysocket/counters.ts';
import type { ServicePort } from '../../../src/proxysocket/core/service-port.ts';
import type { Traffic } from '../../../src/proxysocket/spec.ts';
import { proxyHeader } from '../../../src/proxysocket/tcp/proxy-protocol.ts';
import { HoldQueue, type HeldClient } from '../../../src/proxysocket/tcp/hold-queue.ts';
import t from 'tap';

t.test('causes of failed connects', (t) => {
  const causes = ['ECONNREFUSED', 'ETIMEDOUT', 'EHOSTUNREACH', 'EMFILE', 'EADDRNOTAVAIL', 'EINVAL'];
  t.same(
    causes.map((code) => connectErrorCause(Object.assign(new Error(code), { code }))),
    ['refused', 'timeout', 'unreachable', 'limit', 'limit', 'other'],
  );
  t.equal(connectErrorCause(new Error('no code')), 'other');
  t.end();
});

t.test('addresses as affinity and events take them', (t) => {
  t.equal(clientAddress({ address: '::ffff:10.0.0.1' }), '10.0.0.1');
  t.equal(clientAddress({ address: '10.0.0.1' }), '10.0.0.1');
  t.equal(clientAddress({ address: '::ffff:1' }), '::ffff:1');
  t.equal(clientAddress({}), '');
  t.equal(addressText({ address: 'fd00::1', port: 80 }), '[fd00::1]:80');
  t.equal(addressText({ address: '10.0.0.1', port: 80 }), '10.0.0.1:80');
  t.equal(addressText({}), '');
  t.end();
});

/** Records which endpoints are skipped. */
class Watched extends RoundRobinBalancer {
  readonly blamed: string[] = [];

  override connectFailed(endpoint: BalancerEndpoint, cause: string): void {
    this.blamed.push(endpoint.text);
    super.connectFailed(endpoint, cause);
  }
}

const TRANSPORT: TcpTransport = {
  listen: () => Promise.reject(new Error('not here')),
  afterSockets: setImmediate,
  destroy: async () => undefined,
};

function setUp(announced?: KnownAddress) {
  const clock = new FakeClock();
  const descriptors = new ProcessDescriptors({ limit: 100, reserve: 0 });
  const limits = { ...DEFAULT_LIMITS, connectTimeoutsMs: [250, 250, 250] };
  const shared = new TcpShared({ limits, clock, descriptors }, TRANSPORT, new LoopGuard(clock));
  const affinity = { kind: 'none' } as const;
  const balancer = new Watched({ clock, random: () => 0.99, affinity, maxAffinityClients: 1 });
  balancer.update([endpointAt(1), endpointAt(2)]);
  if (announced !== undefined) balancer.update([{ ...endpointAt(1), address: '203.0.113.10' }]);
  const counters = newCounters();
  const owner = {
    name: 'ns/s:p',
    protocol: 'TCP',
    balancer,
    counters,
    udpIdleTimeoutMs: 0,
    keepsClients: announced && 'all',
  } as const;
  const dials: DialOwner[] = [];
  const sources: (string | undefined)[] = [];
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
    readHead: () => undefined,
    dial(_endpoint, dialOwner, source) {
      dials.push(dialOwner);
      sources.push(source);
      return {
        localAddress: () => ({}),
        abandon: () => undefined,
        join() {
          throw new Error('there is no endpoint to relay to');
        },
      };
    },
  };
  const origin: Origin = { family: 4, admits: () => true, trafficFrom: () => 'internal' };
  const connection = new TcpConnection(shared, client, owner, origin);
  shared.gate.enter();
  return {
    shared,
    balancer,
    counters,
    connection,
    sources,
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

t.test('the client’s address is read only when needed, and once', async (t) => {
  const { connection, asked } = setUp();
  connection.start();
  t.equal(asked(), 0);
  t.equal(connection.client, '10.0.0.9');
  t.equal(connection.client, '10.0.0.9');
  t.equal(asked(), 1);
  connection.destroy();
});

t.test('no endpoint is connected to from an address that a load balancer has named', async (t) => {
  const announced = { address: '198.51.100.7', port: 1 };
  const { connection, sources } = setUp(announced);
  connection.startAnnounced();
  connection.head(proxyHeader(1, announced, announced));
  connection.headTaken();
  t.equal(connection.client, '198.51.100.7', 'it counts for affinity and events');
  t.same(sources, [undefined]);
  connection.destroy();
});

/** Which clients are held, and when they are released: with a clock and a balancer of the test. */

/** A queue with a service port whose endpoints serve the traffic of `serves`. */
function newQueue({ capacity = 10_000, holdTimeoutMs = 1000 } = {}) {
  const clock = new FakeClock();
  const limits = { ...DEFAULT_LIMITS, holdTimeoutMs };
  const budget = { capacity, used: 0, acquire: () => true, acquireSpare: () => true };
  const nothing = (): void => undefined;
  const descriptors = { ...budget, release: nothing, releaseSpare: nothing };
  const queue = new HoldQueue({ clock, limits, descriptors });
  const serves = new Set<Traffic>();
  const balancer = { serves: (traffic: Traffic) => serves.has(traffic) };
  const owner = { name: 'd/web', counters: newCounters(), balancer } as unknown as ServicePort;
  return { clock, limits, queue, serves, owner };
}

class Client implements HeldClient {
  readonly traffic: Traffic;
  readonly remoteAddress = '192.0.2.1:5';
  readonly servicePort = 'd/web';
  heldSince: number | undefined;
  outcome: RejectReason | 'endpoint' | 'none' = 'none';

  constructor(traffic: Traffic = 'internal') {
    this.traffic = traffic;
  }

  endpointThere(): void {
    this.outcome = 'endpoint';
  }

  reject(reason: RejectReason): void {
    this.outcome = reason;
  }

  destroy(): void {}

  inspect(): undefined {}
}

function outcomes(clients: readonly Client[], of: Client['outcome']): number {
  return clients.filter(({ outcome }) => outcome === of).length;
}

t.test(
  'clients are released in batches, the oldest first, while there is an endpoint',
  async (t) => {
    const { queue, owner, serves, clock } = newQueue();
    const clients = Array.from({ length: 200 }, () => new Client());
    for (const client of clients) queue.enter(client, owner);
    serves.add('internal');
    queue.endpointsChanged(owner);
    const first = outcomes(clients, 'endpoint');
    t.ok(first > 0 && first < 100, 'others have their turn in between');
    t.equal(outcomes(clients.slice(0, first), 'endpoint'), first);
    queue.endpointsChanged(owner);
    t.equal(outcomes(clients, 'endpoint'), first, 'another change brings them on no faster');
    serves.clear();
    clock.advance(10);
    t.equal(outcomes(clients, 'endpoint'), first, 'the endpoint is gone before the next bundle');
    t.equal(owner.counters.held, 200 - first);
    serves.add('internal');
    queue.endpointsChanged(owner);
    clock.advance(100);
    t.equal(outcomes(clients, 'endpoint'), 200);
    t.match([queue.size, owner.counters.held, owner.counters.heldTotal], [0, 0, 200]);
  },
);

t.test('held clients have half of the descriptors at the most', async (t) => {
  const { queue, owner } = newQueue({ capacity: 40 });
  const changes = collect(t, limitChanged);
  const holds = Array.from({ length: 12 }, () => queue.enter(new Client(), owner));
  t.equal(holds.filter((hold) => hold === 'limit').length, 2, '10 with 2 each are half of 40');
  t.match(changes, [{ limit: 'max-held-connections', value: 10, reached: true }]);
  for (const hold of holds) if (typeof hold !== 'string') hold.end('client-gone');
  t.match(changes, [{ reached: true }, { reached: false }]);
});

t.test('holds no client if there are endpoints, or without a hold timeout', async (t) => {
  const { queue, owner, serves, limits } = newQueue({ holdTimeoutMs: 0 });
  t.equal(queue.enter(new Client(), owner), 'no-endpoint');
  limits.holdTimeoutMs = 5;
  queue.limitsChanged();
  serves.add('internal');
  t.equal(queue.enter(new Client(), owner), 'no-endpoint');
  t.equal(owner.counters.heldTotal, 0);
});
