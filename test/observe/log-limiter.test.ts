import * as fc from 'fast-check';
import t from 'tap';
import { LogLimiter } from '../../src/observe/log-limiter.ts';
import { FakeClock } from '../support/fake-clock.ts';

function setup(options: { burst?: number; perSecond?: number } = {}) {
  const clock = new FakeClock();
  const reports: [string, number][] = [];
  const limiter = new LogLimiter({
    clock,
    ...options,
    report: (kind, suppressed) => reports.push([kind, suppressed]),
  });
  return { clock, reports, limiter };
}

t.test('a burst comes through, then one line per second', (t) => {
  const { clock, limiter } = setup({ burst: 3, perSecond: 1 });
  t.same(
    [1, 2, 3, 4, 5].map(() => limiter.take('x')),
    [0, 0, 0, undefined, undefined],
  );
  clock.advance(999);
  t.equal(limiter.take('x'), undefined);
  clock.advance(1);
  t.equal(limiter.take('x'), 3, 'and tells how many were held back');
  t.equal(limiter.take('x'), undefined);
  t.end();
});

t.test('kinds do not disturb each other', (t) => {
  const { limiter } = setup({ burst: 1 });
  t.equal(limiter.take('x'), 0);
  t.equal(limiter.take('x'), undefined);
  t.equal(limiter.take('y'), 0);
  t.end();
});

t.test('what is held back is reported when no line follows', (t) => {
  const { clock, limiter, reports } = setup({ burst: 1 });
  limiter.take('x');
  limiter.take('x');
  limiter.take('x');
  clock.advance(10_000);
  t.same(reports, [['x', 2]]);
  clock.advance(60_000);
  t.same(reports, [['x', 2]], 'once');
  t.equal(limiter.take('x'), 0, 'and not again with the next line');
  t.end();
});

t.test('closing reports the rest and leaves no timer', (t) => {
  const { clock, limiter, reports } = setup({ burst: 1 });
  limiter.take('x');
  limiter.take('x');
  limiter.close();
  t.same(reports, [['x', 1]]);
  t.equal(clock.pending, 0);
  t.end();
});

t.test('a rest pays back no more than a burst', (t) => {
  const { clock, limiter } = setup({ burst: 2, perSecond: 10 });
  clock.advance(3_600_000);
  t.same(
    [1, 2, 3].map(() => limiter.take('x')),
    [0, 0, undefined],
  );
  t.end();
});

t.test('every line is either written or counted exactly once', (t) => {
  const steps = fc.array(fc.integer({ min: 0, max: 2500 }), { maxLength: 60 });
  const outcome = fc.check(
    fc.property(steps, (waits) => {
      const { clock, limiter, reports } = setup({ burst: 2 });
      let written = 0;
      let told = 0;
      for (const wait of waits) {
        clock.advance(wait);
        const taken = limiter.take('x');
        if (taken === undefined) continue;
        written += 1;
        told += taken;
      }
      limiter.close();
      return written + told + reports.reduce((sum, [, count]) => sum + count, 0) === waits.length;
    }),
    { interruptAfterTimeLimit: 3000, markInterruptAsFailure: false },
  );
  t.notOk(outcome.failed, JSON.stringify(outcome.counterexample));
  t.end();
});
