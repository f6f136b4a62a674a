import t from 'tap';
import { auditor } from '../../../src/portal/watch.ts';
import { FakeClock } from '../../support/fake-clock.ts';

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

t.test('what takes long is compared less often, unless it was slow only once', async (t) => {
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

t.test('what repairs do not help becomes seldom', async (t) => {
  const { audit, within } = rig();
  audit.repairs = true;
  t.equal(await within(3750), 5, 'a few are made at once');
  const few = await within(20_000);
  t.ok(few <= 6, `then they back off: ${few}`);
  audit.repairs = false;
  await within(100_000);
  t.equal(await within(7500), 10);
});
