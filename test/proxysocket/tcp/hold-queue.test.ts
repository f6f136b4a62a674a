/** Which clients are held, and when they are released: with a clock and a balancer of the test. */
import t from 'tap';
import { newCounters, type RejectReason } from '../../../src/proxysocket/counters.ts';
import { limitChanged } from '../../../src/proxysocket/events.ts';
import { DEFAULT_LIMITS } from '../../../src/proxysocket/limits.ts';
import type { ServicePort } from '../../../src/proxysocket/core/service-port.ts';
import type { Traffic } from '../../../src/proxysocket/spec.ts';
import { HoldQueue, type HeldClient } from '../../../src/proxysocket/tcp/hold-queue.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { collect } from '../../support/sockets.ts';

/** A queue with a service port whose endpoints serve the traffic of `serves`. */
function newQueue({ capacity = 10_000, holdTimeoutMs = 1000 } = {}) {
  const clock = new FakeClock();
  const limits = { ...DEFAULT_LIMITS, holdTimeoutMs };
  const budget = { capacity, used: 0, take: () => true, takeSpare: () => true };
  const nothing = (): void => undefined;
  const descriptors = { ...budget, give: nothing, giveSpare: nothing };
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
  'many go on bundle by bundle, the oldest first, as long as there is an endpoint',
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

t.test('nothing is timed when nobody waits', async (t) => {
  const { queue, owner, clock } = newQueue();
  t.equal(clock.pending, 0);
  const hold = queue.enter(new Client(), owner);
  t.equal(clock.pending, 1);
  if (typeof hold !== 'string') hold.end('client-gone');
  clock.advance(1000);
  t.equal(clock.pending, 0);
});

t.test('an endpoint for other traffic leaves a client where it is', async (t) => {
  const { queue, owner, serves, clock } = newQueue();
  const [inside, outside] = [new Client('internal'), new Client('external')];
  queue.enter(inside, owner);
  queue.enter(outside, owner);
  serves.add('external');
  queue.endpointsChanged(owner);
  t.strictSame([inside.outcome, outside.outcome], ['none', 'endpoint']);
  clock.advance(1000);
  t.equal(inside.outcome, 'hold-timeout');
});

t.test('held clients have half of the descriptors at the most', async (t) => {
  const { queue, owner } = newQueue({ capacity: 40 });
  const changes = collect(t, limitChanged);
  const holds = Array.from({ length: 12 }, () => queue.enter(new Client(), owner));
  t.equal(holds.filter((hold) => hold === 'limit').length, 2, '10 with 2 each are half of 40');
  t.match(changes, [{ limit: 'max-held-connections', value: 10, reached: true }]);
  for (const hold of holds) if (typeof hold !== 'string') hold.end('client-gone');
  t.match(changes, [{ reached: true }, { reached: false }]);
});

t.test('nobody is let in whose service port is gone: nothing would end the wait', async (t) => {
  const { queue, owner, clock } = newQueue();
  const client = new Client();
  queue.enter(client, owner);
  queue.servicePortGone(owner);
  t.equal(client.outcome, 'no-endpoint');
  t.equal(queue.enter(new Client(), owner), 'no-endpoint');
  t.match([queue.size, owner.counters.held, owner.counters.heldTotal], [0, 0, 1]);
  clock.advance(1000);
  t.equal(clock.pending, 0);
});

t.test('nobody is let in where there are endpoints, or without a hold timeout', async (t) => {
  const { queue, owner, serves, limits } = newQueue({ holdTimeoutMs: 0 });
  t.equal(queue.enter(new Client(), owner), 'no-endpoint');
  limits.holdTimeoutMs = 5;
  queue.limitsChanged();
  serves.add('internal');
  t.equal(queue.enter(new Client(), owner), 'no-endpoint');
  t.equal(owner.counters.heldTotal, 0);
});
