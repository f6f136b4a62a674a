import t from 'tap';
import * as fc from 'fast-check';
import { Backoff, DEFAULT_BACKOFF } from '../../src/util/backoff.ts';

t.test('waits grow from one second to half a minute and stay there', async (t) => {
  const backoff = new Backoff(DEFAULT_BACKOFF, () => 0.5);
  const waits = Array.from({ length: 10 }, () => Math.round(backoff.next()));
  t.strictSame(waits, [1000, 1600, 2560, 4096, 6554, 10486, 16777, 26844, 30000, 30000]);
});

t.test('after a reset the first wait comes again', async (t) => {
  const backoff = new Backoff(DEFAULT_BACKOFF, () => 0.5);
  backoff.next();
  backoff.next();
  backoff.reset();
  t.equal(backoff.next(), 1000);
  t.equal(backoff.next(), 1600);
});

t.test('jitter spreads a wait by a fifth either way, and does not add up', async (t) => {
  const low = new Backoff(DEFAULT_BACKOFF, () => 0);
  t.equal(low.next(), 800);
  t.equal(low.next(), 1280);
  const policy = { initialMs: 40_000, maxMs: 30_000, factor: 2, jitter: 0.2 };
  fc.assert(
    fc.property(fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }), (random) => {
      const wait = new Backoff(policy, () => random).next();
      return wait >= 24_000 && wait <= 36_000;
    }),
    { interruptAfterTimeLimit: 3000, markInterruptAsFailure: false },
  );
});
