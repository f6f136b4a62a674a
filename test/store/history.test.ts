import assert from 'node:assert/strict';
import * as fc from 'fast-check';
import t from 'tap';
import { History, type Pin } from '../../src/store/history.ts';
import { Table } from '../../src/store/table.ts';
import { holds } from '../support/property.ts';

function setUp(limit = 1000) {
  const history = new History(limit);
  const table = new Table<string>(history, () => 1);
  let revision = 0;
  let pinned = 0;
  return {
    history,
    table,
    /** `together`: with the change before, unless that was pinned. */
    set: (key: string, value: string | undefined, together = false): void => {
      if (!together || pinned === revision) revision++;
      table.set(key, value, revision);
      history.enforceLimit();
    },
    pin: (onEvicted: () => void = () => {}): Pin => {
      pinned = revision;
      return history.pin(revision, onEvicted);
    },
    at: (key: string, pin: Pin) =>
      table
        .cells()
        .find((cell) => cell.key === key)
        ?.at(pin.revision),
  };
}

t.test('above the limit the readers that lag furthest lose their pins', async (t) => {
  const { set, pin, history, at } = setUp(2);
  const evicted: string[] = [];
  const evictable = (name: string): Pin => {
    const own = pin(() => {
      evicted.push(name);
      own.release();
    });
    return own;
  };
  for (const key of ['a', 'b', 'c', 'd']) set(key, '1');
  evictable('first');
  evictable('first too');
  set('a', '2');
  const second = evictable('second');
  set('b', '2');
  t.strictSame(evicted, []);
  t.equal(history.kept, 2);
  set('c', '2');
  t.strictSame(evicted, ['first', 'first too']);
  t.equal(history.kept, 2, 'the second one needs b and c');
  t.equal(at('b', second), '1');
  set('d', '2');
  t.strictSame(evicted, ['first', 'first too', 'second']);
  t.equal(history.kept, 0);
});

type Step =
  | {
      readonly kind: 'set';
      readonly key: string;
      readonly value: string | undefined;
      readonly together: boolean;
    }
  | { readonly kind: 'pin' }
  | { readonly kind: 'release'; readonly which: number };

const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({
    kind: fc.constant('set' as const),
    key: fc.constantFrom('a', 'b', 'c'),
    value: fc.option(fc.constantFrom('1', '2'), { nil: undefined }),
    together: fc.boolean(),
  }),
  fc.record({ kind: fc.constant('pin' as const) }),
  fc.record({ kind: fc.constant('release' as const), which: fc.nat(5) }),
);

t.test('each pin sees the state of its moment and what changed since', async (t) => {
  holds(
    t,
    fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
      const { set, pin, table, history } = setUp();
      const now = new Map<string, string>();
      const pins: { pin: Pin; former: Map<string, string>; touched: Set<string> }[] = [];
      for (const step of steps) {
        if (step.kind === 'pin') {
          pins.push({ pin: pin(), former: new Map(now), touched: new Set() });
        } else if (step.kind === 'release') {
          // It may be released twice.
          const [released] = pins.splice(step.which, 1);
          for (const _ of [1, 2]) released?.pin.release();
        } else if (step.value !== undefined || now.has(step.key)) {
          set(step.key, step.value, step.together);
          if (step.value === undefined) now.delete(step.key);
          else now.set(step.key, step.value);
          for (const { touched } of pins) touched.add(step.key);
        }
        for (const { pin, former, touched } of pins) {
          const seen = table.cells().flatMap((cell) => {
            const value = cell.at(pin.revision);
            return value === undefined ? [] : [[cell.key, value] as const];
          });
          assert.deepEqual(new Map(seen), former);
          const since = [...table.changedSince(pin.revision)].map(({ key }) => key);
          // What came and went unseen may be reported or not.
          const told = since.filter((key) => now.has(key) || former.has(key)).sort();
          const wanted = [...touched].filter((key) => now.has(key) || former.has(key)).sort();
          assert.deepEqual(told, wanted);
        }
      }
      for (const { pin } of pins) pin.release();
      assert.equal(history.kept, 0);
      assert.equal(table.cells().length, now.size);
    }),
  );
});
