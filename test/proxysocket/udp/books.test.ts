/** The tables that sessions are found in. */
import * as fc from 'fast-check';
import t from 'tap';
import { newCounters } from '../../../src/proxysocket/counters.ts';
import type { ServicePort } from '../../../src/proxysocket/core/service-port.ts';
import { ClientTable, SessionIndex } from '../../../src/proxysocket/udp/tables.ts';
import { RoundRobinBalancer } from '../../../src/roundrobin/balancer.ts';
import type { BalancerEndpoint } from '../../../src/roundrobin/types.ts';
import { FakeClock } from '../../support/fake-clock.ts';

const BOUNDED = { interruptAfterTimeLimit: 3000, markInterruptAsFailure: false };

t.test('property: a client table is a map by address and port', async (t) => {
  const client = fc.record({
    address: fc.constantFrom('127.0.0.1', '127.0.0.2', '::1'),
    port: fc.integer({ min: 1, max: 3 }),
  });
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.boolean(), client), { maxLength: 60 }), (steps) => {
      const table = new ClientTable<{ client: { address: string; port: number } }>();
      const model = new Map<string, { client: { address: string; port: number } }>();
      for (const [add, at] of steps) {
        const key = `${at.address} ${at.port}`;
        const value = { client: at };
        if (add) {
          table.add(value);
          model.set(key, value);
        } else {
          table.delete(value);
          const there = model.get(key);
          if (there !== undefined && table.get(at.address, at.port) !== there) {
            throw new Error('another value of the same client was deleted');
          }
          if (there !== undefined) table.delete(there);
          model.delete(key);
        }
        if (table.get(at.address, at.port) !== model.get(key)) throw new Error(key);
        if (new Set(table.values()).size !== model.size) throw new Error('size');
      }
    }),
    BOUNDED,
  );
  t.pass();
});

t.test('a client table may lose values while it is gone through', async (t) => {
  const table = new ClientTable<{ client: { address: string; port: number } }>();
  for (let port = 1; port <= 9; port += 1) {
    table.add({ client: { address: `127.0.0.${1 + (port % 3)}`, port } });
  }
  let seen = 0;
  for (const value of table.values()) {
    table.delete(value);
    seen += 1;
  }
  t.equal(seen, 9);
  t.same([...table.values()], []);
});

function servicePort(name: string): ServicePort & { ends: readonly BalancerEndpoint[] } {
  const balancer = new RoundRobinBalancer({
    clock: new FakeClock(),
    random: Math.random,
    affinity: { kind: 'none' },
    maxAffinityClients: 1,
  });
  balancer.update(
    [1, 2].map((port) => ({ address: '127.0.0.1', port, internal: true, external: true })),
  );
  return {
    name,
    protocol: 'UDP',
    balancer,
    counters: newCounters(),
    udpIdleTimeoutMs: 1,
    ends: balancer.endpoints(),
  };
}

t.test('sessions are found by endpoint, by service port, and all together', async (t) => {
  const index = new SessionIndex<{ owner: ServicePort; endpoint: BalancerEndpoint }>();
  const [a, b] = [servicePort('a'), servicePort('b')];
  const sessions = [a, b].flatMap((owner) =>
    owner.ends.flatMap((endpoint) => [1, 2].map(() => ({ owner, endpoint }))),
  );
  for (const session of sessions) index.add(session);

  t.equal(index.all().length, 8);
  t.equal(index.ofOwner(a).length, 4);
  const [first] = a.ends as [BalancerEndpoint];
  t.same(index.ofEndpoint(a, first), sessions.slice(0, 2));
  t.same(index.ofEndpoint(b, first), [], 'the same address behind another service is another');

  for (const session of index.ofEndpoint(a, first)) index.delete(session);
  t.same(index.ofEndpoint(a, first), []);
  t.equal(index.ofOwner(a).length, 2);
  for (const session of index.ofOwner(a)) index.delete(session);
  for (const session of sessions) index.delete(session);
  t.same(index.all(), []);
  t.same(index.ofOwner(a), []);
});
