import t from 'tap';
import { newCounters, observeConnectSeconds } from '../../../src/proxysocket/counters.ts';
import {
  CounterReader,
  CounterSlots,
  type CounterPlace,
} from '../../../src/proxysocket/threads/counter-slots.ts';

function pair() {
  const reader = new CounterReader();
  let blocks = 0;
  const slots = new CounterSlots((memory) => {
    blocks += 1;
    reader.addBlock(memory);
  });
  const placeOf = (counters: Parameters<typeof slots.release>[0]): CounterPlace => {
    const place = slots.placeOf(counters);
    if (place === undefined) throw new Error('it has no place');
    return place;
  };
  return { reader, slots, placeOf, blocks: () => blocks };
}

t.test('what one side counts the other one reads', (t) => {
  const { reader, slots, placeOf } = pair();
  const [one, other] = [slots.create(), slots.create()];
  const place = placeOf(one);
  t.same(reader.read(place), newCounters(), 'all zero');

  one.connections += 3;
  one.active += 2;
  one.active -= 1;
  one.bytesIn += 2 ** 40 + 1;
  one.connectErrors.refused += 1;
  one.connectErrors['other'] += 5;
  observeConnectSeconds(one, 0.0005);
  observeConnectSeconds(one, 99);
  t.match(reader.read(place), {
    connections: 3,
    active: 1,
    bytesIn: 2 ** 40 + 1,
    connectErrors: { refused: 1, other: 5, timeout: 0 },
    connectSeconds: { sum: 99.0005 },
  });
  const counts = reader.read(place)?.connectSeconds.counts ?? [];
  t.equal(counts.length, newCounters().connectSeconds.counts.length);
  t.same([counts[0], counts.at(-1)], [1, 1]);
  t.same(reader.read(placeOf(other)), newCounters(), 'nobody else’s');
  t.equal(one.connections, 3, 'the writer reads it, too');
  t.end();
});

t.test('every counter that there is has a place', (t) => {
  const { reader, slots, placeOf } = pair();
  const counters = slots.create();
  const plain = Object.entries(newCounters()).filter(([, value]) => typeof value === 'number');
  const writable = counters as unknown as Record<string, number>;
  for (const [index, [name]] of plain.entries()) writable[name] = index + 1;
  const read = reader.read(placeOf(counters)) as unknown as Record<string, number>;
  for (const [index, [name]] of plain.entries()) t.equal(read[name], index + 1, name);
  t.end();
});

t.test('a place is used again, and late counts of its former owner do no harm', (t) => {
  const { reader, slots, placeOf } = pair();
  const former = slots.create();
  former.connections = 7;
  const before = placeOf(former);
  slots.release(former);
  slots.release(former);
  t.equal(slots.placeOf(former), undefined);
  t.equal(reader.read(before), undefined, 'nobody reads another one’s counts');

  const latter = slots.create();
  const place = placeOf(latter);
  t.match(place, { block: before.block, slot: before.slot });
  former.connections += 1;
  former.connectErrors.limit += 1;
  observeConnectSeconds(former, 1);
  t.same(reader.read(place), newCounters());
  t.equal(former.connections, 8, 'a connection on its way can go on counting');
  t.end();
});

t.test('there are as many as are needed', (t) => {
  const { reader, slots, placeOf, blocks } = pair();
  const all = Array.from({ length: 1000 }, (_, index) => {
    const counters = slots.create();
    counters.connections = index;
    return counters;
  });
  t.equal(blocks(), 4);
  for (const [index, counters] of all.entries()) {
    if (reader.read(placeOf(counters))?.connections !== index) t.fail(`number ${index}`);
  }
  for (const counters of all) slots.release(counters);
  for (let count = 0; count < 1000; count += 1) slots.create();
  t.equal(blocks(), 4, 'and no more');
  t.equal(reader.read({ block: 9, slot: 0, generation: 1 }), undefined);
  t.end();
});
