import * as fc from 'fast-check';
import t from 'tap';
import { limitChanged } from '../../../../src/proxysocket/events.ts';
import {
  BulkBuffers,
  Scratch,
  SHARED_BYTES,
} from '../../../../src/proxysocket/node/tcp/buffers.ts';
import { holds } from '../../../support/property.ts';
import { collect } from '../../../support/sockets.ts';

const MB = 1024 * 1024;

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
      scratch.keep();
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
