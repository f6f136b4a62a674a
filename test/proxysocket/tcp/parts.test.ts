import * as fc from 'fast-check';
import t from 'tap';
import { limitChanged } from '../../../src/proxysocket/events.ts';
import { ProcessDescriptors } from '../../../src/proxysocket/core/descriptors.ts';
import { addressText, clientAddress } from '../../../src/proxysocket/tcp/addresses.ts';
import { BulkBuffers } from '../../../src/proxysocket/tcp/bulk-buffers.ts';
import { connectErrorCause } from '../../../src/proxysocket/tcp/connect-error.ts';
import { DeadlineQueue } from '../../../src/proxysocket/core/deadlines.ts';
import { EndpointIndex } from '../../../src/proxysocket/core/endpoint-index.ts';
import { ConnectionGate } from '../../../src/proxysocket/tcp/gate.ts';
import { takeConnections } from '../../../src/proxysocket/tcp/handle.ts';
import { Scratch, SHARED_BYTES } from '../../../src/proxysocket/tcp/scratch.ts';
import { createServer } from 'node:net';
import { FakeClock } from '../../support/fake-clock.ts';
import { holds } from '../../support/property.ts';
import { collect } from '../../support/sockets.ts';

const MB = 1024 * 1024;

t.test('DeadlineQueue: one timer, in order, and what was removed stays silent', (t) => {
  const clock = new FakeClock();
  const due: string[] = [];
  const queue = new DeadlineQueue<string>(clock, 100, (item) => due.push(item));
  queue.add('a');
  clock.advance(40);
  const b = queue.add('b');
  queue.add('c');
  t.equal(clock.pending, 1);
  clock.advance(59);
  t.same(due, []);
  clock.advance(1);
  t.same(due, ['a']);
  b.remove();
  t.equal(queue.size, 1);
  clock.advance(40);
  t.same(due, ['a', 'c']);
  t.equal(clock.pending, 0);
  t.end();
});

t.test('DeadlineQueue: an item may be added anew when it falls due', (t) => {
  const clock = new FakeClock();
  const due: [string, number][] = [];
  const queue = new DeadlineQueue<string>(clock, 100, (item) => {
    due.push([item, clock.now()]);
    if (due.length < 5) queue.add(item);
  });
  queue.add('a');
  clock.advance(30);
  queue.add('b');
  clock.advance(1000);
  t.same(due, [
    ['a', 100],
    ['b', 130],
    ['a', 200],
    ['b', 230],
    ['a', 300],
    ['b', 330],
  ]);
  t.end();
});

t.test('DeadlineQueue: after a pause of the loop sockets come first', (t) => {
  for (const pause of [0.5, 300]) {
    const base = new FakeClock();
    let late = 0;
    const clock = {
      now: () => base.now() + late,
      setTimer: (ms: number, callback: () => void) => base.setTimer(ms, callback),
    };
    const due: string[] = [];
    const looks: (() => void)[] = [];
    const queue = new DeadlineQueue<string>(
      clock,
      100,
      (item) => due.push(item),
      (callback) => looks.push(callback),
    );
    const answered = queue.add('answered meanwhile');
    queue.add('not answered');
    late = pause;
    base.advance(100);
    t.same(due, []);
    t.equal(base.pending, 0, 'no timer can come first');
    answered.remove();
    looks.pop()?.();
    t.same(due, ['not answered']);
    t.equal(base.pending, 0);
    t.equal(looks.length, 0);
  }
  t.end();
});

t.test('DeadlineQueue: by default that is with the next timer', (t) => {
  const base = new FakeClock();
  let late = 0;
  const clock = {
    now: () => base.now() + late,
    setTimer: (ms: number, callback: () => void) => base.setTimer(ms, callback),
  };
  const due: string[] = [];
  new DeadlineQueue<string>(clock, 100, (item) => due.push(item)).add('a');
  late = 50;
  base.advance(100);
  t.same(due, []);
  base.advance(1);
  t.same(due, ['a']);
  t.equal(base.pending, 0);
  t.end();
});

t.test('BulkBuffers: large ones first, then medium ones, then none', (t) => {
  const changes = collect(t, limitChanged);
  const buffers = new BulkBuffers(4 * MB);
  const taken: Buffer[] = [];
  for (let buffer = buffers.take(); buffer !== undefined; buffer = buffers.take()) {
    taken.push(buffer);
  }
  t.same(
    taken.map(({ length }) => length / 1024),
    [1024, 1024, 1024, 256, 256, 256, 256],
  );
  t.equal(buffers.used, 4 * MB);
  t.same(changes, [{ limit: 'bulk-buffer-budget', value: 4 * MB, reached: true }]);
  const [first] = taken;
  if (first !== undefined) buffers.give(first);
  t.equal(changes[1]?.reached, false);
  t.ok(buffers.take() === first, 'what comes back is used again');
  t.equal(new BulkBuffers(0).take(), undefined);
  t.end();
});

t.test('BulkBuffers: never beyond the budget', (t) => {
  const steps = fc.array(fc.boolean(), { maxLength: 60 });
  const property = fc.property(fc.nat({ max: 8 * MB }), steps, (budget, all) => {
    const buffers = new BulkBuffers(budget);
    const mine: Buffer[] = [];
    for (const take of all) {
      const buffer = take ? buffers.take() : undefined;
      const back = take ? undefined : mine.pop();
      if (buffer !== undefined && mine.includes(buffer)) return false;
      if (buffer !== undefined) mine.push(buffer);
      if (back !== undefined) buffers.give(back);
      const used = mine.reduce((sum, { length }) => sum + length, 0);
      if (used !== buffers.used || used > budget) return false;
    }
    return true;
  });
  holds(t, property);
  t.end();
});

t.test('Scratch: chunks that are kept are never overwritten', (t) => {
  const source = Buffer.alloc(SHARED_BYTES);
  const steps = fc.array(fc.tuple(fc.integer({ min: 1, max: SHARED_BYTES }), fc.boolean()), {
    maxLength: 50,
  });
  const property = fc.property(steps, (all) => {
    const scratch = new Scratch();
    const kept: [Buffer, number][] = [];
    for (const [index, [length, keep]] of all.entries()) {
      source.fill(index + 1, 0, length);
      const copy = scratch.copy(source, length);
      if (!copy.equals(source.subarray(0, length))) return false;
      if (!keep) continue;
      scratch.keep(length);
      kept.push([copy, index + 1]);
    }
    return kept.every(([copy, value]) => copy.every((byte) => byte === value));
  });
  holds(t, property);
  t.end();
});

t.test('Scratch: a chunk that was taken at once costs no memory', (t) => {
  const scratch = new Scratch();
  const source = Buffer.alloc(1000);
  const first = scratch.copy(source, 1000);
  const second = scratch.copy(source, 1000);
  t.equal(second.buffer, first.buffer);
  t.equal(second.byteOffset, first.byteOffset);
  t.end();
});

t.test('ConnectionGate: lets in as many as may be, and tells when all have left', async (t) => {
  const descriptors = new ProcessDescriptors({ limit: 100, reserve: 0 });
  const gate = new ConnectionGate({ maxConnections: 2 }, descriptors);
  await gate.empty();
  t.same([gate.enter(), gate.enter(), gate.enter()], [true, true, false]);
  t.equal(descriptors.used, 4, 'a connection that is refused holds nothing');
  let empty = false;
  const waiting = gate.empty().then(() => (empty = true));
  gate.leave();
  await new Promise(setImmediate);
  t.equal(empty, false);
  gate.leave();
  await waiting;
  t.equal(descriptors.used, 0);
  const few = new ConnectionGate(
    { maxConnections: 2 },
    new ProcessDescriptors({ limit: 1, reserve: 0 }),
  );
  t.equal(few.enter(), false);
  t.equal(few.inside, 0);
});

t.test('EndpointIndex: finds the connections of an endpoint', (t) => {
  const [one, two] = ['one', 'two'].map((text) => ({
    text,
    address: '',
    port: 1,
    family: 4 as const,
  }));
  if (one === undefined || two === undefined) throw new Error('unreachable');
  const index = new EndpointIndex<string>();
  t.same(index.of(one), []);
  const a = index.add(one, 'a');
  index.add(two, 'b');
  index.add(one, 'c');
  t.same(index.of(one), ['a', 'c']);
  a.remove();
  a.remove();
  t.same(index.of(one), ['c']);
  t.same(index.of({ ...one }), [], 'the object counts, not what it says');
  t.same(index.all(), ['b', 'c']);
  t.end();
});

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

t.test('this Node lets us take accepted handles; without them nothing is changed', (t) => {
  const server = createServer();
  t.equal(
    takeConnections(server, 1000, () => undefined),
    false,
    'a server that does not listen has no handle',
  );
  server.listen(0, '127.0.0.1', () => {
    t.equal(
      takeConnections(server, 1000, () => undefined),
      true,
      'the fast way is in use on this version',
    );
    const strange = { _handle: { getpeername: () => 0 } };
    t.equal(
      takeConnections(strange as unknown as typeof server, 1000, () => undefined),
      false,
    );
    server.close();
    t.end();
  });
});
