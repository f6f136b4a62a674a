import t from 'tap';
import { newCounters } from '../../../src/proxysocket/counters.ts';
import { ProcessDescriptors } from '../../../src/proxysocket/core/descriptors.ts';
import { rejected } from '../../../src/proxysocket/events.ts';
import { DEFAULT_LIMITS } from '../../../src/proxysocket/limits.ts';
import type { Attempt } from '../../../src/proxysocket/tcp/attempt.ts';
import { connectErrorCause } from '../../../src/proxysocket/tcp/connect-error.ts';
import { TcpConnection } from '../../../src/proxysocket/tcp/connection.ts';
import { DeadlineQueue, type Deadline } from '../../../src/proxysocket/core/deadlines.ts';
import type { Incoming } from '../../../src/proxysocket/tcp/incoming.ts';
import { createTcpShared, type TcpShared } from '../../../src/proxysocket/tcp/shared.ts';
import { RoundRobinBalancer } from '../../../src/roundrobin/balancer.ts';
import type { BalancerEndpoint } from '../../../src/roundrobin/types.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { endpointAt } from '../../support/tcp-peers.ts';
import { collect } from '../../support/sockets.ts';

/** Records whom it is told about. */
class Watched extends RoundRobinBalancer {
  readonly blamed: string[] = [];

  override connectFailed(endpoint: BalancerEndpoint): void {
    this.blamed.push(endpoint.text);
    super.connectFailed(endpoint);
  }
}

/** Remembers the attempts whose time is running. */
class Timeouts extends DeadlineQueue<Attempt> {
  readonly attempts: Attempt[] = [];

  override add(attempt: Attempt): Deadline<Attempt> {
    this.attempts.push(attempt);
    return super.add(attempt);
  }
}

function setUp() {
  const clock = new FakeClock();
  const descriptors = new ProcessDescriptors({ limit: 100, reserve: 0 });
  const timeouts = new Timeouts(clock, 250, (attempt) => attempt.timedOut());
  const options = { clock, timeoutMs: 250, timeouts };
  const shared: TcpShared = {
    ...createTcpShared({ limits: DEFAULT_LIMITS, clock, descriptors }),
    attempts: [options, options, options],
  };
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
  let asked = 0;
  let resets = 0;
  const incoming: Incoming = {
    calls: undefined,
    remote() {
      asked += 1;
      return { address: '::ffff:10.0.0.9', port: 1234 };
    },
    local: () => ({}),
    reset: () => (resets += 1),
    socket() {
      throw new Error('there is no endpoint to relay to');
    },
    start: () => undefined,
    hold() {
      throw new Error('there is no hold timeout');
    },
  };
  const connection = new TcpConnection(shared, incoming, { owner, traffic: 'internal', family: 4 });
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
      const attempt = timeouts.attempts.at(-1);
      if (attempt === undefined) throw new Error('nothing is being tried');
      attempt.abandon();
      const error = Object.assign(new Error(code), { code });
      connection.failed(attempt, connectErrorCause(error), error);
    },
  };
}

t.test('an endpoint is not blamed for a lack of descriptors or source ports', (t) => {
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
  t.end();
});

t.test('one that refuses is', (t) => {
  const { connection, balancer, counters, fail } = setUp();
  connection.start();
  fail('ECONNREFUSED');
  fail('ECONNREFUSED');
  t.same(balancer.blamed, ['127.0.0.1:1', '127.0.0.1:2']);
  t.match(counters, { connectErrors: { refused: 2 }, rejectedConnectFailed: 1, rejectedLimit: 0 });
  t.end();
});

t.test('the client is asked for its address only when somebody needs it, and once', (t) => {
  const { connection, asked } = setUp();
  connection.start();
  t.equal(asked(), 0);
  t.equal(connection.client, '10.0.0.9');
  t.equal(connection.client, '10.0.0.9');
  t.equal(asked(), 1);
  connection.destroy();
  t.end();
});

t.test('what is over stays over', (t) => {
  const { connection, shared, resets } = setUp();
  connection.start();
  connection.destroy();
  connection.destroy();
  connection.endpointGone();
  connection.graceOver();
  t.equal(resets(), 1);
  t.equal(shared.gate.inside, 0);
  t.same(shared.index.all(), []);
  t.end();
});
