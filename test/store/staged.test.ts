import t from 'tap';
import * as fc from 'fast-check';
import { DELETED, KEPT, StateSize, type Staged } from '../../src/store/staged.ts';
import { holds } from '../support/property.ts';

const step = fc.record({
  does: fc.constantFrom('set', 'set', 'delete', 'keep', 'reset', 'sync'),
  key: fc.constantFrom('a', 'b', 'c'),
  length: fc.nat(3),
});

/** One entry of this many characters fills the limit. */
const CHARACTERS = 10_000;
const LIMITS = { maxEntries: 10, maxBytes: CHARACTERS + 201 };

t.test('nothing is left of what was deleted, and nothing is counted twice', (t) => {
  holds(
    t,
    fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
      const size = new StateSize(LIMITS);
      let state = new Map<string, object>();
      const staged = new Map<string, Staged<object>>();
      let suspect = false;
      const stage = (key: string, value: Staged<object>): void => {
        const previous = staged.get(key);
        if (value === KEPT && previous !== undefined) return;
        staged.set(key, value);
        size.stage({ pathLength: 1, before: state.get(key), previous, value });
      };
      const sync = (): void => {
        const before = state;
        state = new Map(suspect ? [] : before);
        for (const [key, value] of staged) {
          const after = value === KEPT ? before.get(key) : value;
          if (typeof after === 'object') state.set(key, after);
          else state.delete(key);
        }
        staged.clear();
        size.sync();
        suspect = false;
      };
      for (const { does, key, length } of steps) {
        if (does === 'set') stage(key, { text: 'x'.repeat(length) });
        else if (does === 'delete') stage(key, DELETED);
        else if (does === 'keep') stage(key, KEPT);
        else if (does === 'sync') sync();
        else {
          staged.clear();
          size.reset();
          suspect = true;
        }
      }
      sync();
      for (const key of state.keys()) stage(key, DELETED);
      sync();
      stage('a', { text: 'x'.repeat(CHARACTERS) });
      try {
        stage('a', { text: 'x'.repeat(CHARACTERS + 1) });
      } catch {
        return;
      }
      throw new Error('more than the limit was accepted');
    }),
  );
  t.end();
});
