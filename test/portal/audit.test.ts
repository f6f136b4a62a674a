import t from 'tap';
import { audit } from '../../src/portal/audit.ts';
import { FakeClock } from '../support/fake-clock.ts';

const CANARY = { intervalMs: 500, goalMs: Infinity, maxMs: 500 };
const COMPARISON = { intervalMs: 750, goalMs: 62.5, maxMs: 5000 };

/** An audit of something that is as the test says. `takes`: how long a check takes. */
function audited(policy: typeof CANARY) {
  const clock = new FakeClock();
  const state = { isDamaged: false, isCurable: true, takes: 0 };
  /** When checks began. */
  const checks: number[] = [];
  let repairs = 0;
  const check = async () => {
    checks.push(clock.now());
    if (state.takes > 0) await new Promise<void>((end) => clock.setTimer(state.takes, end));
    if (!state.isDamaged) return false;
    repairs += 1;
    if (!state.isCurable) throw new Error('nft is missing');
    state.isDamaged = false;
    return true;
  };
  const closing = new AbortController();
  const ended = audit(policy, check, clock, closing.signal);
  t.teardown(() => closing.abort());
  /** The number of checks and repairs within a time. */
  const within = async (ms: number) => {
    const before = { checks: checks.length, repairs };
    for (const end = clock.now() + ms; clock.now() < end;) {
      clock.advance(50);
      for (let turn = 0; turn < 5; turn += 1) await new Promise(setImmediate);
    }
    return { checks: checks.length - before.checks, repairs: repairs - before.repairs };
  };
  return { closing, ended, state, checks, clock, within };
}

t.test('checks at each interval until the end', async (t) => {
  const { closing, ended, state, checks, clock, within } = audited(CANARY);
  state.takes = 100;
  await within(2000);
  t.strictSame(checks, [500, 1000, 1500, 2000], 'the duration of a check does not matter');
  state.takes = 10_000;
  await within(12_000);
  t.strictSame(checks.slice(4), [2500, 12_750], 'but after a long one there is a rest');
  closing.abort();
  t.equal((await within(20_000)).checks, 0);
  await ended;
  t.equal(clock.pending, 0);
});

t.test('repairs that do not help become rare', async (t) => {
  const { state, within } = audited(CANARY);
  Object.assign(state, { isDamaged: true, isCurable: false });
  const { repairs } = await within(60_000);
  t.ok(repairs >= 8 && repairs <= 12, `${repairs} in the first minute`);
  const later = await within(60_000);
  t.ok(later.repairs <= 3, `then two or three a minute: ${later.repairs}`);
  state.isDamaged = false;
  await within(36_000);
  Object.assign(state, { isDamaged: true, isCurable: true });
  t.equal((await within(500)).repairs, 1, 'the next damage is repaired at once');
});

t.test('slow checks run less often, unless only one was slow', async (t) => {
  const { state, checks, within } = audited(COMPARISON);
  for (const number of [1, 16]) {
    state.takes = 3000;
    while (checks.length < number) await within(50);
    state.takes = 0;
    t.ok((await within(7500)).checks >= 5, 'this one had only to wait for others');
    t.equal((await within(7500)).checks, 10);
  }
  state.takes = 200;
  await within(20_000);
  const { checks: slow } = await within(24_000);
  t.ok(slow >= 8 && slow <= 10, `a twelfth of the time: ${slow}`);
  state.takes = 10_000;
  await within(100_000);
  const { checks: rare } = await within(60_000);
  t.ok(rare >= 3 && rare <= 5, `but every five seconds: ${rare}`);
});
