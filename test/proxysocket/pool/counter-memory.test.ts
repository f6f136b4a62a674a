import t from 'tap';
import {
  CONNECT_ERROR_CAUSES,
  newCounters,
  observeConnectSeconds,
  PLAIN_COUNTERS,
  type NewCounters,
} from '../../../src/proxysocket/counters.ts';
import { sharedCounters } from '../../../src/proxysocket/pool/counter-memory.ts';
import { ServicePorts } from '../../../src/proxysocket/pool/service-ports.ts';
import type { EngineChange, Protocol } from '../../../src/proxysocket/spec.ts';
import { listenSpec } from '../../support/fake-host.ts';

function set(name: string, protocol: Protocol = 'TCP'): EngineChange {
  return { kind: 'set', spec: listenSpec(name, ['127.0.0.1:0'], protocol) };
}

/** The service ports of two threads, and the counters of each. */
function setUp() {
  const none = { set: () => false, open: () => [], statusOf: () => [] };
  const ports = new ServicePorts(none);
  let rows = 0;
  const threads = [0, 1].map(() => {
    const create: NewCounters = sharedCounters((...row) => {
      rows += 1;
      ports.counts(create, ...row);
    });
    return create;
  });
  /** Applies a change; returns where each thread counts then. `meanwhile`: before the threads have it. */
  const apply = (change: EngineChange, meanwhile = (): void => undefined) => {
    const [located] = ports.withSlots(ports.note([change]).changes);
    meanwhile();
    ports.table.forget();
    if (located?.kind !== 'set')
      return { slot: undefined, one: newCounters(), other: newCounters() };
    const { slot, spec } = located;
    const [one = newCounters(), other = newCounters()] = threads.map((create) =>
      create(spec.name, slot),
    );
    return { slot, one, other };
  };
  const read = (name = 'd/web') => ports.table.snapshot([name])[0]?.counters;
  return { ports, threads, apply, read, rows: () => rows };
}

t.test('what two threads count is read as one', (t) => {
  const { ports, apply, read, rows } = setUp();
  const { one, other } = apply(set('d/web'));
  const { one: unused } = apply(set('d/unused'));
  t.equal(unused.active + unused.connectErrors.limit, 0);
  t.same(read(), newCounters(), 'all zero');
  t.equal(rows(), 0, 'which takes no memory');

  one.connections += 3;
  other.connections += 4;
  one.active += 2;
  one.active -= 1;
  other.active += 1;
  one.bytesIn += 2 ** 40 + 1;
  one.connectErrors.refused += 1;
  other.connectErrors['other'] += 5;
  observeConnectSeconds(one, 0.0005);
  observeConnectSeconds(other, 99);
  t.match(read(), {
    connections: 7,
    active: 2,
    bytesIn: 2 ** 40 + 1,
    connectErrors: { refused: 1, other: 5, timeout: 0 },
    connectSeconds: { sum: 99.0005 },
  });
  const { counts = [] } = read()?.connectSeconds ?? {};
  t.equal(counts.length, newCounters().connectSeconds.counts.length);
  t.same([counts[0], counts.at(-1)], [1, 1]);
  t.same(read('d/unused'), newCounters(), 'not those of another one');
  t.equal(one.connections, 3, 'a thread reads its own');
  t.match(ports.table.activity(), { servicePorts: 2, active: 2 });
  t.end();
});

t.test('counters of a removed service port continue while a thread has relays', (t) => {
  const { ports, threads, apply, read } = setUp();
  const [first, second] = threads;
  const { slot, one, other } = apply(set('d/web'));
  one.connections = 3;
  other.active = 1;
  apply({ kind: 'remove', name: 'd/web' });
  t.match(ports.table.snapshot(), [{ draining: true }]);
  t.equal(apply(set('d/web')).slot, slot);
  t.equal(second?.('d/web', slot, other), other);
  // A thread without any counts on after those of the other one.
  const next = first?.('d/web', slot) ?? newCounters();
  next.connections = 1;
  next.active = 1;
  t.match(read(), { connections: 4, active: 2 });
  ports.countsNoMore(first ?? {});
  t.match(read(), { connections: 4, active: 1 });
  apply({ kind: 'remove', name: 'd/web' });
  other.active = 0;
  t.same(ports.table.names(), [], 'its last relay has ended');
  t.not(apply(set('d/web'), () => (other.connections += 1)).slot, slot);
  t.same(read(), newCounters(), 'late counts are discarded');
  t.end();
});

t.test('a client that comes while its service port is being removed counts', (t) => {
  const { ports, apply } = setUp();
  const { one } = apply(set('d/web'));
  apply({ kind: 'remove', name: 'd/web' }, () => {
    t.same(ports.table.names(), []);
    t.match(ports.table.activity(), { servicePorts: 0 });
    one.active = 1;
  });
  t.match(ports.table.snapshot(), [{ draining: true, counters: { active: 1 } }]);
  t.end();
});

t.test('clients during a change of protocol do not count for the new service port', (t) => {
  const { ports, apply } = setUp();
  const { one } = apply(set('d/web'));
  ports.note([{ kind: 'remove', name: 'd/web' }]);
  const late = (): void => {
    one.connections += 1;
    one.active += 1;
  };
  const { one: after } = apply(set('d/web', 'UDP'), late);
  after.datagramsIn += 1;
  const expected = { protocol: 'UDP', counters: { connections: 0, active: 0, datagramsIn: 1 } };
  t.match(ports.table.snapshot(), [expected]);
  t.end();
});

t.test('every counter counts, but for those that say how many there are now', (t) => {
  for (const name of PLAIN_COUNTERS) {
    const { ports, apply, read } = setUp();
    apply(set('d/web')).one[name] = 3;
    t.equal(read()?.[name], 3, name);
    const isGauge = name === 'active' || name === 'held';
    t.equal(ports.table.activity().counted, isGauge ? 0 : 3, name);
  }
  for (const cause of CONNECT_ERROR_CAUSES) {
    const { ports, apply } = setUp();
    apply(set('d/web')).other.connectErrors[cause] = 1;
    t.equal(ports.table.activity().counted, 1, cause);
  }
  t.end();
});
