import t from 'tap';
import { DeadlineQueue } from '../../../src/proxysocket/core/timers.ts';
import { HALF_CLOSE_LOOKS, HalfCloseWatch } from '../../../src/proxysocket/tcp/half-close.ts';
import { FakeClock } from '../../support/fake-clock.ts';

/** A half-closed relay that is watched with a limit of 800 ms. */
function setUp() {
  const clock = new FakeClock();
  const halfClosed = new DeadlineQueue<HalfCloseWatch>(clock, 800 / HALF_CLOSE_LOOKS, (watch) =>
    watch.look(),
  );
  const timeouts: number[] = [];
  const relay = {
    bytesIn: 0,
    bytesOut: 0,
    queued: 0,
    unsent() {
      return this.queued;
    },
    start: () => undefined,
    keepAlive: () => undefined,
    reset: () => timeouts.push(clock.now()),
  };
  void new HalfCloseWatch({ halfClosed }, relay);
  return { clock, relay, timeouts };
}

t.test('a part of what the system has yet to send restarts the time', async (t) => {
  const { clock, relay, timeouts } = setUp();
  relay.queued = 1000;
  for (let step = 0; step < 6; step += 1) {
    clock.advance(600);
    relay.queued -= 100;
  }
  t.same(timeouts, []);
});
