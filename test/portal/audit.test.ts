import t from 'tap';
import { audit } from '../../src/portal/audit.ts';
import { FakeClock } from '../support/fake-clock.ts';

const CANARY = { intervalMs: 500, goalMs: Infinity, maxMs: 500 };
const COMPARISON = { intervalMs: 750, goalMs: 62.5, maxMs: 5000 };

/** An audit of something that is as the test says. */
function audited(policy: typeof CANARY) {
  const clock = new FakeClock();
  const state = {
    damaged: false,
    /** Whether a repair helps. */
    curable: true,
    /** How long a check takes. Milliseconds. */
    takes: 0,
    /** When checks began. */
    checks: [] as number[],
    repairs: 0,
  };
  const check = async () => {
    state.checks.push(clock.now());
    if (state.takes > 0) await new Promise<void>((end) => clock.setTimer(state.takes, end));
    if (!state.damaged) return undefined;
    return async () => {
      state.repairs += 1;
      if (!state.curable) throw new Error('nft is missing');
      state.damaged = false;
    };
  };
  const closing = new AbortController();
  const ended = audit(policy, check, clock, closing.signal);
  t.teardown(() => closing.abort());
  /** The number of checks and repairs within a time. */
  const within = async (ms: number): Promise<{ checks: number; repairs: number }> => {
    const before = { checks: state.checks.length, repairs: state.repairs };
    for (const end = clock.now() + ms; clock.now() < end;) {
      clock.advance(50);
      for (let turn = 0; turn < 5; turn += 1) await new Promise(setImmediate);
    }
    return {
      checks: state.checks.length - before.checks,
      repairs: state.repairs - before.repairs,
    };
  };
  return { closing, ended, state, clock, within };
}

t.test('checks at each interval until the end', async (t) => {
  const { closing, ended, clock, within } = audited(CANARY);
  t.strictSame(await within(2000), { checks: 4, repairs: 0 });
  closing.abort();
  await ended;
  t.equal((await within(2000)).checks, 0);
  t.equal(clock.pending, 0);
});

t.test('the duration of a check does not delay the next one', async (t) => {
  const { state, within } = audited(CANARY);
  state.takes = 100;
  await within(2000);
  t.strictSame(
    state.checks.slice(1, 4).map((at, n) => at - (state.checks[n] ?? 0)),
    [500, 500, 500],
  );
  state.takes = 10_000;
  state.checks.length = 0;
  await within(12_000);
  const [first = 0, second = 0] = state.checks;
  t.equal(second - first, 10_250, 'but after a long one there is a rest');
});

t.test('repairs that do not help become rare', async (t) => {
  const { state, within } = audited(CANARY);
  Object.assign(state, { damaged: true, curable: false });
  const { repairs } = await within(60_000);
  t.ok(repairs >= 8 && repairs <= 12, `${repairs} in the first minute`);
  const later = await within(60_000);
  t.ok(later.repairs <= 3, `then two or three a minute: ${later.repairs}`);
  state.damaged = false;
  await within(36_000);
  Object.assign(state, { damaged: true, curable: true });
  t.equal((await within(500)).repairs, 1, 'the next damage is repaired at once');
});

t.test('slow checks run less often, unless only one was slow', async (t) => {
  const { state, within } = audited(COMPARISON);
  state.takes = 3000;
  while (state.checks.length < 1) await within(50);
  state.takes = 0;
  t.ok((await within(7500)).checks >= 5, 'the first one had only to wait for others');
  t.equal((await within(7500)).checks, 10);
  state.takes = 3000;
  while (state.checks.length < 11) await within(50);
  state.takes = 0;
  t.ok((await within(7500)).checks >= 5, 'once it had only to wait for others');
  state.takes = 200;
  await within(20_000);
  const { checks } = await within(24_000);
  t.ok(checks >= 8 && checks <= 10, `a twelfth of the time: ${checks}`);
  state.takes = 10_000;
  await within(100_000);
  const slow = await within(60_000);
  t.ok(slow.checks >= 3 && slow.checks <= 5, `but every five seconds: ${slow.checks}`);
});
