import t from 'tap';
import { Guard, type ProbeResult } from '../../src/portal/watch.ts';
import { FakeClock } from '../support/fake-clock.ts';

/** A guard of rules that are as the test says; `log` tells what it did. */
function guarded() {
  const clock = new FakeClock();
  const state = {
    clock,
    found: 'alive' as ProbeResult,
    /** Whether a repair helps. */
    curable: true,
    fails: false,
    log: [] as string[],
    looks: 0,
    /** How long a look takes. Milliseconds. */
    takes: 0,
    onLook: (): unknown => undefined,
  };
  const guard = new Guard({
    clock,
    random: () => 0.5,
    look: async () => {
      state.looks += 1;
      state.onLook();
      await Promise.resolve();
      clock.advance(state.takes);
      return state.found;
    },
    housekeeping: async () => {
      state.log.push('housekeeping');
    },
    repair: async (found, first) => {
      state.log.push(`repair ${found}${first ? ' first' : ''}`);
      if (state.fails) throw new Error('nft is missing');
      if (state.curable) state.found = 'alive';
    },
  });
  return { guard, state };
}

async function pass(clock: FakeClock, ms: number, step = 100): Promise<void> {
  for (let passed = 0; passed < ms; passed += step) {
    clock.advance(step);
    for (let turn = 0; turn < 5; turn += 1) await new Promise(setImmediate);
  }
}

t.test('looks every half second, and only once it was started', async (t) => {
  const { guard, state } = guarded();
  await pass(state.clock, 1000);
  t.equal(state.looks, 0);
  guard.start();
  guard.start();
  await pass(state.clock, 2000);
  t.equal(state.looks, 4);
  t.strictSame(new Set(state.log), new Set(['housekeeping']));
  await guard.close();
  await pass(state.clock, 2000);
  t.equal(state.looks, 4);
  t.equal(state.clock.pending, 0);
});

t.test('what a look takes does not put off the next one', async (t) => {
  const { guard, state } = guarded();
  guard.start();
  const begin = state.clock.now();
  const begins: number[] = [];
  state.takes = 100;
  state.onLook = () => begins.push(state.clock.now() - begin);
  await pass(state.clock, 1400);
  t.strictSame(begins, [500, 1000, 1500], 'half a second from begin to begin');
  state.takes = 10_000;
  begins.length = 0;
  await pass(state.clock, 1000);
  const [first = 0, second = 0] = begins;
  t.equal(second - first, 10_250, 'but after a long one there is a rest');
  await guard.close();
});

t.test('has rules that are gone repaired at the next look', async (t) => {
  const { guard, state } = guarded();
  guard.start();
  await pass(state.clock, 500);
  state.found = 'gone';
  await pass(state.clock, 500);
  t.strictSame(state.log, ['housekeeping', 'repair gone first']);
  await pass(state.clock, 500);
  state.found = 'gone';
  await pass(state.clock, 500);
  t.strictSame(state.log.slice(2), ['housekeeping', 'repair gone first'], 'each loss by itself');
  await guard.close();
});

t.test('silence counts only when it lasts', async (t) => {
  const { guard, state } = guarded();
  guard.start();
  state.found = 'silent';
  await pass(state.clock, 1000);
  t.strictSame(state.log, []);
  state.found = 'alive';
  await pass(state.clock, 500);
  state.found = 'silent';
  await pass(state.clock, 1500);
  t.strictSame(state.log, ['housekeeping', 'repair silent first']);
  await guard.close();
});

t.test('repairs that do not help become seldom', async (t) => {
  const { guard, state } = guarded();
  Object.assign(state, { found: 'gone', curable: false, fails: true });
  guard.start();
  await pass(state.clock, 60_000);
  const minute = state.log.length;
  t.ok(minute >= 8 && minute <= 12, `${minute} in the first minute`);
  await pass(state.clock, 60_000);
  t.ok(state.log.length - minute <= 3, 'and two or three a minute from then on');
  t.strictSame(new Set(state.log), new Set(['repair gone first', 'repair gone']));
  state.found = 'alive';
  await pass(state.clock, 36_000);
  state.log.length = 0;
  Object.assign(state, { found: 'gone', curable: true, fails: false });
  await pass(state.clock, 500);
  t.strictSame(state.log, ['repair gone first'], 'the next loss is repaired at once');
  await guard.close();
});
