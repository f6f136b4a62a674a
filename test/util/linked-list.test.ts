import * as fc from 'fast-check';
import t from 'tap';
import { LinkedList, type ListNode } from '../../src/util/linked-list.ts';
import { holds } from '../support/property.ts';

t.test('members leave from the front, the middle and the end', (t) => {
  const list = new LinkedList<string>();
  const [a, b, c, d] = ['a', 'b', 'c', 'd'].map((item) => list.add(item));
  t.same([...list], ['a', 'b', 'c', 'd']);
  b?.remove();
  t.same([...list], ['a', 'c', 'd']);
  a?.remove();
  t.equal(list.first?.item, 'c');
  d?.remove();
  t.same([...list], ['c']);
  c?.remove();
  t.same([...list], []);
  t.equal(list.first, undefined);
  list.add('e');
  t.same([...list], ['e']);
  t.end();
});

t.test('leaving twice is leaving once', (t) => {
  const list = new LinkedList<string>();
  const a = list.add('a');
  const again = list.add('a');
  a.remove();
  a.remove();
  t.equal(list.size, 1);
  again.remove();
  t.equal(list.size, 0);
  t.end();
});

t.test('it behaves as a Map in insertion order', (t) => {
  const steps = fc.array(fc.tuple(fc.boolean(), fc.nat({ max: 15 })), { maxLength: 100 });
  const property = fc.property(steps, (all) => {
    const list = new LinkedList<number>();
    const nodes = new Map<number, ListNode<number>>();
    for (const [add, value] of all) {
      if (add && !nodes.has(value)) nodes.set(value, list.add(value));
      else if (!add) {
        nodes.get(value)?.remove();
        nodes.delete(value);
      }
      if ([...list].join() !== [...nodes.keys()].join()) return false;
      if (list.size !== nodes.size || list.first?.item !== [...nodes.keys()][0]) return false;
    }
    return true;
  });
  holds(t, property);
  t.end();
});
