import t from 'tap';
import { newCounters, observeConnectSeconds } from '../../../src/proxysocket/counters.ts';
import { CounterMemory, CounterRows } from '../../../src/proxysocket/pool/counter-memory.ts';
import { ListeningSockets } from '../../../src/proxysocket/pool/listening-sockets.ts';
import { ServicePorts } from '../../../src/proxysocket/pool/service-ports.ts';
import type { EngineChange, Protocol } from '../../../src/proxysocket/spec.ts';

/** Memory for two threads, and the rows of each. */
function pair() {
  const memory = new CounterMemory(2);
  const threads = [0, 1].map((index) => new CounterRows(index, 2));
  /** The counters of a service port in each thread. */
  const begin = (slot = memory.allocate()) => {
    for (const rows of threads) rows.assign(memory.blocks);
    const [one, other] = threads.map((rows) => rows.create(slot));
    if (one === undefined || other === undefined) throw new Error('there are two');
    return { slot, one, other };
  };
  return { memory, threads, begin };
}

t.test('what two threads count is read as one', (t) => {
  const { memory, begin } = pair();
  const { slot, one, other } = begin();
  const { slot: unused } = begin();
  t.same(memory.read(slot), newCounters(), 'all zero');

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
  t.match(memory.read(slot), {
    connections: 7,
    active: 2,
    bytesIn: 2 ** 40 + 1,
    connectErrors: { refused: 1, other: 5, timeout: 0 },
    connectSeconds: { sum: 99.0005 },
  });
  const { counts } = memory.read(slot).connectSeconds;
  t.equal(counts.length, newCounters().connectSeconds.counts.length);
  t.same([counts[0], counts.at(-1)], [1, 1]);
  t.same(memory.read(unused), newCounters(), 'not those of another one');
  t.equal(one.connections, 3, 'a thread reads its own');
  t.equal(memory.activityOf(slot).active, 2);
  t.end();
});

t.test('counts of a thread that is lost stay, and its gauges do not', (t) => {
  const { memory, begin } = pair();
  const { slot, one, other } = begin();
  one.connections = 7;
  one.active = 5;
  one.held = 2;
  other.active = 1;
  memory.dropRow(0);
  t.match(memory.read(slot), { connections: 7, active: 1, held: 0 });

  const next = new CounterRows(0, 2);
  next.assign(memory.blocks);
  next.create(slot).connections += 1;
  t.equal(memory.read(slot).connections, 8, 'the next one counts on');
  t.end();
});

t.test('a slot is reused, and late counts of its previous owner do no harm', (t) => {
  const { memory, threads, begin } = pair();
  const { slot, one } = begin();
  one.connections = 7;
  threads[0]?.release(one);
  memory.free(slot);
  t.equal(memory.allocate(), slot);
  t.same(memory.read(slot), newCounters());

  const latter = begin(slot);
  one.connections += 1;
  one.connectErrors.limit += 1;
  observeConnectSeconds(one, 1);
  t.same(memory.read(slot), newCounters());
  t.equal(one.connections, 8, 'a connection on its way can keep counting');
  latter.other.connections += 1;
  t.equal(memory.read(slot).connections, 1);
  t.end();
});

t.test('there are as many slots as needed', (t) => {
  const { memory } = pair();
  const slots = Array.from({ length: 10_000 }, () => memory.allocate());
  t.equal(new Set(slots).size, 10_000);
  t.equal(memory.blocks.length, 3);
  for (const slot of slots) memory.free(slot);
  for (let count = 0; count < 10_000; count += 1) memory.allocate();
  t.equal(memory.blocks.length, 3, 'and no more');
  t.end();
});

t.test('clients during a change of protocol do not count for the new service port', (t) => {
  const [memory, rows] = [new CounterMemory(1), new CounterRows(0, 1)];
  const ports = new ServicePorts(1, new ListeningSockets(1), memory, () => true);
  const change = (protocol: Protocol): EngineChange => {
    const listen = [{ address: '127.0.0.1', port: 0, traffic: 'internal' }] as const;
    const spec = { name: 'd/web', protocol, listen, endpoints: [] } as const;
    return { kind: 'set', spec: { ...spec, affinity: { kind: 'none' } } };
  };
  /** Where a thread that gets the batch counts from then on. */
  const counters = (batch: EngineChange) => {
    const [located] = ports.located([batch]);
    rows.assign(memory.blocks);
    return rows.create(located?.kind === 'set' ? located.slot : undefined);
  };
  const tcp = change('TCP');
  ports.note([tcp]);
  const before = counters(tcp);
  ports.settled([tcp]);

  const udp = change('UDP');
  ports.note([{ kind: 'remove', name: 'd/web' }, udp]);
  before.connections += 1;
  before.active += 1;
  const after = counters(udp);
  ports.settled([udp]);
  after.datagramsIn += 1;
  const expected = { protocol: 'UDP', counters: { connections: 0, active: 0, datagramsIn: 1 } };
  t.match(ports.snapshot(), [expected]);
  t.equal(memory.allocate(), 0, 'the place of the old counters is free');
  t.end();
});

t.test('a slot is not reused before the threads have left it', (t) => {
  const [memory, rows] = [new CounterMemory(1), new CounterRows(0, 1)];
  const ports = new ServicePorts(1, new ListeningSockets(1), memory, () => true);
  const listen = [{ address: '127.0.0.1', port: 0, traffic: 'internal' }] as const;
  const apply = (change: EngineChange, meanwhile = (): void => undefined) => {
    ports.note([change]);
    meanwhile();
    const [located] = ports.located([change]);
    rows.assign(memory.blocks, ports.freed);
    const made = located?.kind === 'set' ? rows.create(located.slot) : undefined;
    ports.settled([change]);
    return made;
  };
  const set = (name: string): EngineChange => {
    const spec = { name, protocol: 'TCP', listen, endpoints: [] } as const;
    return { kind: 'set', spec: { ...spec, affinity: { kind: 'none' } } };
  };
  const web = apply(set('d/web')) ?? newCounters();
  web.active = 1;
  apply({ kind: 'remove', name: 'd/web' });
  web.active = 0;
  t.same(ports.names(), [], 'its last relay has ended');
  // Endpoints of other clients answer only now.
  const late = (): void => void (web.active += 1);
  apply(set('d/next'), late);
  apply(set('d/third'), late);
  t.match(ports.snapshot(), [{ counters: { active: 0 } }, { counters: { active: 0 } }]);
  t.equal(memory.allocate(), 2, 'two slots are enough');
  t.end();
});

t.test('service ports without clients take no memory, also when a thread is lost', (t) => {
  const memory = new CounterMemory(2);
  for (let count = 0; count < 100_000; count += 1) memory.allocate();
  const before = process.memoryUsage.rss();
  memory.dropRow(0);
  t.ok(process.memoryUsage.rss() - before < 2 ** 24);
  t.end();
});
