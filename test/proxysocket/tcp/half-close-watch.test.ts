import t from 'tap';
import { DeadlineQueue } from '../../../src/proxysocket/core/timers.ts';
import { HALF_CLOSE_LOOKS, HalfCloseWatch } from '../../../src/proxysocket/tcp/half-close.ts';
import { FakeClock } from '../../support/fake-clock.ts';

/** A half-closed relay that is watched with a limit of 800 ms. */
function setUp() {
  const clock = new FakeClock();
  const queueOf = (limitMs: number): DeadlineQueue<HalfCloseWatch> =>
    new DeadlineQueue(clock, limitMs / HALF_CLOSE_LOOKS, (watch) => watch.look());
  const times = { halfClosed: queueOf(800) };
  const timeouts: number[] = [];
  const relay = {
    bytesIn: 0,
    bytesOut: 0,
    queued: 0,
    asked: 0,
    unsent() {
      this.asked += 1;
      return this.queued;
    },
    start: () => undefined,
    keepAlive: () => undefined,
    reset: () => timeouts.push(clock.now()),
  };
  const watch = new HalfCloseWatch(times, relay);
  const setLimit = (limitMs: number): void => {
    times.halfClosed = queueOf(limitMs);
  };
  return { clock, setLimit, watch, relay, timeouts };
}

t.test('an idle relay ends after the limit, once', async (t) => {
  const { clock, timeouts } = setUp();
  clock.advance(5000);
  t.same(timeouts, [800]);
  t.equal(clock.pending, 0);
});

t.test('bytes either way restart the time, and cost no system call', async (t) => {
  const { clock, relay, timeouts } = setUp();
  for (let step = 0; step < 50; step += 1) {
    clock.advance(100);
    if (step % 2 === 0) relay.bytesIn += 1;
    else relay.bytesOut += 1;
  }
  t.ok(relay.asked <= 1, 'asked only when bytes stand still');
  t.same(timeouts, []);
  clock.advance(750);
  t.same(timeouts, []);
  clock.advance(250);
  t.equal(timeouts.length, 1);
});

t.test('so does a part of what the system has yet to send', async (t) => {
  const { clock, relay, timeouts } = setUp();
  relay.queued = 1000;
  for (let step = 0; step < 6; step += 1) {
    clock.advance(600);
    relay.queued -= 100;
  }
  t.same(timeouts, []);
});

t.test('a new limit counts from the next check on', async (t) => {
  const { clock, setLimit, timeouts } = setUp();
  clock.advance(150);
  setLimit(80_000);
  clock.advance(5000);
  t.same(timeouts, []);
  setLimit(80);
  clock.advance(11_000);
  t.equal(timeouts.length, 1);
});

t.test('a relay that has ended is watched no more', async (t) => {
  const { clock, watch, timeouts } = setUp();
  clock.advance(350);
  watch.end();
  watch.end();
  clock.advance(5000);
  t.same(timeouts, []);
  t.equal(clock.pending, 0);
});
