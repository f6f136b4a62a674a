import t from 'tap';
import { auditor, Guard, Pace, type ProbeResult } from '../../src/portal/watch.ts';
import { FakeClock } from '../support/fake-clock.ts';

/** A guard of rules that are as the test says; `log` reports what it did. */
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
    /** How long a check takes. Milliseconds. */
    takes: 0,
    onLook: (): unknown => undefined,
  };
  const guard = new Guard({
    clock,
    random: () => 0.5,
    check: async () => {
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

t.test('checks every half second, once started', async (t) => {
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

t.test('the duration of a check does not delay the next one', async (t) => {
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

t.test('missing rules are repaired at the next check', async (t) => {
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

t.test('missing answers count only if they persist', async (t) => {
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

t.test('repairs that do not help become rare', async (t) => {
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

const POLICY = { intervalMs: 750, goalMs: 62.5, maxMs: 5000 };

/** Comparisons that take a time and find what the test says. */
function rig() {
  const clock = new FakeClock();
  const audit = { takes: 0, repairs: false, count: 0 };
  const repeater = auditor(clock, POLICY, async () => {
    audit.count += 1;
    if (audit.takes > 0) await new Promise<void>((end) => clock.setTimer(audit.takes, end));
    return audit.repairs ? async () => undefined : undefined;
  });
  t.teardown(() => void repeater.close());
  repeater.start(POLICY.intervalMs);
  /** How many there are within a time. */
  const within = async (ms: number): Promise<number> => {
    const before = audit.count;
    const end = clock.now() + ms;
    while (clock.now() < end) {
      clock.advance(50);
      for (let turn = 0; turn < 5; turn += 1) await new Promise(setImmediate);
    }
    return audit.count - before;
  };
  return { audit, within };
}

t.test('slow comparisons run less often, unless only one was slow', async (t) => {
  const { audit, within } = rig();
  t.equal(await within(7500), 10);
  audit.takes = 3000;
  await within(100);
  while (audit.count < 11) await within(50);
  audit.takes = 0;
  t.ok((await within(7500)) >= 5, 'once it had only to wait for others');
  audit.takes = 200;
  await within(20_000);
  const seldom = await within(24_000);
  t.ok(seldom >= 8 && seldom <= 10, `a twelfth of the time: ${seldom}`);
  audit.takes = 10_000;
  await within(100_000);
  const slow = await within(60_000);
  t.ok(slow >= 3 && slow <= 5, `but every five seconds: ${slow}`);
});

t.test('comparisons whose repairs do not help become rare', async (t) => {
  const { audit, within } = rig();
  audit.repairs = true;
  t.equal(await within(3750), 5, 'a few are made at once');
  const few = await within(20_000);
  t.ok(few <= 6, `then they back off: ${few}`);
  audit.repairs = false;
  await within(100_000);
  t.equal(await within(7500), 10);
});

function added(count: number) {
  return Array.from({ length: count }, (_, n) => {
    return { set: 'a', key: String(n), before: undefined, after: '1' };
  });
}

t.test('checks are half a second apart while writing everything takes less', (t) => {
  const pace = new Pace();
  t.equal(pace.intervalMs, 500);
  pace.note({ reason: 'start', changes: added(1000) }, 300);
  t.equal(pace.intervalMs, 500);
  pace.note({ reason: 'repair', changes: [] }, 5000);
  t.equal(pace.intervalMs, 500, 'a repair may have been about a part, or may have waited');
  t.end();
});

t.test('checks are closer together the more there is to write', (t) => {
  const pace = new Pace();
  pace.note({ reason: 'start', changes: added(1000) }, 300);
  pace.note({ reason: 'change', changes: added(500) }, 5);
  t.equal(
    pace.intervalMs,
    250,
    'what takes 0.45 s leaves as much, and every second check is where one was before',
  );
  pace.note({ reason: 'change', changes: added(5000) }, 5);
  t.equal(pace.intervalMs, 200, 'but no closer than this');
  const gone = added(5500).map(({ set, key }) => {
    return { set, key, before: '1', after: undefined };
  });
  pace.note({ reason: 'change', changes: gone }, 5);
  t.equal(pace.intervalMs, 500);
  t.end();
});

t.test('with any interval, periodic work coincides with a check', (t) => {
  for (const [writeMs, parts] of [
    [0, 1],
    [150, 1],
    [151, 2],
    [525, 2],
    [526, 3],
    [650, 3],
  ] as const) {
    const pace = new Pace(750);
    pace.note({ reason: 'start', changes: added(1) }, writeMs);
    t.equal(pace.intervalMs * parts, 750, `${writeMs} ms`);
  }
  t.end();
});
