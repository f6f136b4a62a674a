import * as fc from 'fast-check';
import t from 'tap';
import { Heap } from '../../src/util/heap.ts';
import { holds } from '../support/property.ts';

const inOrder = (one: number, other: number): number => one - other;

t.test('the least comes first, whatever was put in and taken out before', (t) => {
  const step = fc.oneof(fc.integer(), fc.constant('pop'));
  holds(
    t,
    fc.property(fc.array(fc.integer()), fc.array(step), (begin, steps) => {
      const heap = new Heap<number>(inOrder, [...begin]);
      const model = [...begin].sort(inOrder);
      for (const each of steps) {
        if (typeof each === 'number') {
          heap.push(each);
          model.push(each);
          model.sort(inOrder);
        } else if (heap.peek() !== model[0] || heap.pop() !== model.shift()) {
          return false;
        }
        if (heap.size !== model.length) return false;
      }
      return model.every((least) => heap.pop() === least) && heap.pop() === undefined;
    }),
  );
  t.end();
});

t.test('what it compares grows with the logarithm', (t) => {
  let compared = 0;
  const heap = new Heap<number>((one, other) => {
    compared += 1;
    return one - other;
  });
  const count = 1 << 12;
  for (let n = 0; n < count; n += 1) heap.push((n * 2_654_435_761) % count);
  for (let n = 0; n < count; n += 1) heap.pop();
  t.ok(compared < count * 3 * 12, `${compared} comparisons of ${count} items`);
  t.end();
});
