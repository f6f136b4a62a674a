import t from 'tap';
import * as fc from 'fast-check';
import { Ring, RingNode } from '../../src/roundrobin/ring.ts';
import { holds } from '../support/property.ts';

t.test('a ring does what a plain array does', async (t) => {
  const step = fc.record({
    kind: fc.constantFrom('join', 'leave', 'turn', 'moveLast', 'turnPast'),
    which: fc.nat(9),
  });
  holds(
    t,
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const ring = new Ring<number>();
      const nodes = Array.from({ length: 10 }, (_, value) => new RingNode(value));
      let model: number[] = [];
      for (const { kind, which } of steps) {
        const node = nodes[which] as RingNode<number>;
        const at = model.indexOf(which);
        if (kind === 'join' && at === -1) {
          ring.join(node);
          model.push(which);
        } else if (kind === 'leave' && at !== -1) {
          ring.leave(node);
          model.splice(at, 1);
        } else if (kind === 'turn') {
          const expected = model.shift();
          if (expected !== undefined) model.push(expected);
          if (ring.turn() !== expected) return false;
        } else if (kind === 'moveLast' && at !== -1) {
          ring.moveLast(node);
          model.splice(at, 1);
          model.push(which);
        } else if (kind === 'turnPast' && at !== -1) {
          ring.turnPast(node);
          model = [...model.slice(at + 1), ...model.slice(0, at + 1)];
        }
        if (ring.size !== model.length) return false;
        if (JSON.stringify([...ring]) !== JSON.stringify(model)) return false;
      }
      return true;
    }),
  );
});
