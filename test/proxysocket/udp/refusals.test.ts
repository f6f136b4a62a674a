import t from 'tap';
import { newCounters } from '../../../src/proxysocket/counters.ts';
import { rejected } from '../../../src/proxysocket/events.ts';
import type { ServicePort } from '../../../src/proxysocket/core/service-port.ts';

import { MAX_REFUSED_CLIENTS, Refusals } from '../../../src/proxysocket/udp/refusals.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { UdpRig } from '../../support/udp-rig.ts';
import { collect } from '../../support/sockets.ts';

const WINDOW = 30_000;

function owner(name = 'test/dns:dns'): ServicePort {
  const { balancer } = new UdpRig({ teardown: () => undefined }).service([]);
  return { name, protocol: 'UDP', balancer, counters: newCounters(), udpIdleTimeoutMs: WINDOW };
}

t.test('each reason has its counter, and every datagram counts as dropped', async (t) => {
  const refusals = new Refusals(new FakeClock(), WINDOW);
  const one = owner();
  const client = { address: '127.0.0.1', port: 5000 };
  for (const reason of ['no-endpoint', 'connect-failed', 'limit', 'source'] as const) {
    refusals.refuse(one, client, reason);
    refusals.refuse(one, client, reason, 4);
  }
  t.match(one.counters, {
    datagramsDropped: 20,
    rejectedNoEndpoint: 1,
    rejectedConnectFailed: 1,
    rejectedLimit: 1,
    rejectedSource: 1,
  });
});

t.test('the event names the client, with brackets for IPv6', async (t) => {
  const events = collect(t, rejected);
  const refusals = new Refusals(new FakeClock(), WINDOW);
  refusals.refuse(owner('ns/a:b'), { address: '::1', port: 53 }, 'limit');
  t.same(events, [
    { servicePort: 'ns/a:b', protocol: 'UDP', remoteAddress: '[::1]:53', reason: 'limit' },
  ]);
});

t.test(
  'a client that goes on asking stays one refusal; one that comes back later is new',
  async (t) => {
    const clock = new FakeClock();
    const refusals = new Refusals(clock, WINDOW);
    const one = owner();
    const client = { address: '127.0.0.1', port: 5000 };
    for (let asked = 0; asked < 20; asked += 1) {
      refusals.refuse(one, client, 'no-endpoint');
      clock.advance(WINDOW / 3);
    }
    t.equal(one.counters.rejectedNoEndpoint, 1);
    clock.advance(2 * WINDOW);
    refusals.refuse(one, client, 'no-endpoint');
    t.equal(one.counters.rejectedNoEndpoint, 2);
  },
);

t.test('ports, addresses and service ports are told apart', async (t) => {
  const refusals = new Refusals(new FakeClock(), WINDOW);
  const [one, two] = [owner('a/a:a'), owner('b/b:b')];
  for (const address of ['127.0.0.1', '127.0.0.2']) {
    for (const port of [1000, 1001]) {
      refusals.refuse(one, { address, port }, 'no-endpoint');
      refusals.refuse(two, { address, port }, 'no-endpoint');
    }
  }
  t.equal(one.counters.rejectedNoEndpoint, 4);
  t.equal(two.counters.rejectedNoEndpoint, 4);
});

t.test('a flood from many ports does not grow the memory of refusals', async (t) => {
  const refusals = new Refusals(new FakeClock(), WINDOW);
  const one = owner();
  const flood = 3 * MAX_REFUSED_CLIENTS;
  const refuse = (port: number): void => {
    refusals.refuse(one, { address: '127.0.0.1', port }, 'no-endpoint');
  };
  for (let port = 1; port <= flood; port += 1) refuse(port);
  t.equal(one.counters.rejectedNoEndpoint, flood);
  refuse(flood);
  t.equal(one.counters.rejectedNoEndpoint, flood, 'the latest are remembered');
  refuse(1);
  t.equal(one.counters.rejectedNoEndpoint, flood + 1, 'the first are forgotten');
});
