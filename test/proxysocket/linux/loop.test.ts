import { INTEREST, Loop, LoopClock, type Pollable } from '../../../src/proxysocket/linux/loop.ts';
import { Pinned } from '../../../src/proxysocket/linux/sys/memory.ts';
import { AF_UNIX, NONBLOCK, SOCK_STREAM } from '../../../src/proxysocket/linux/sys/abi.ts';
import type { Sys } from '../../../src/proxysocket/linux/sys/sys.ts';
import { linuxTest, newLoop, newSys } from '../../support/linux-sys.ts';

/** Two sockets that are connected to each other, for the test to close. */
function connectedPair({ ffi, c }: Sys): readonly [number, number] {
  const { address, view } = new Pinned(ffi, 8);
  c.socketpair(AF_UNIX, SOCK_STREAM | NONBLOCK, 0, address);
  return [view.getInt32(0, true), view.getInt32(4, true)];
}

/** Notes the masks that it is called with. */
function noting(masks: number[]): Pollable {
  return { ready: (mask) => void masks.push(mask), failed: () => undefined };
}

linuxTest('an old event is not taken for one of a new socket with the same number', (t) => {
  const sys = newSys();
  const loop = newLoop(t, sys);
  const [one, oneEnd] = connectedPair(sys);
  const [two, twoEnd] = connectedPair(sys);
  const memory = new Pinned(sys.ffi, 1);
  const calls: string[] = [];
  const successors: number[] = [];
  const late: number[] = [];
  /** The one called first closes the other one and opens a socket, which gets its number. */
  const closing = (name: string, other: number): Pollable => ({
    ready() {
      calls.push(name);
      loop.close(other);
      // Lower numbers may be free, too, and come first.
      let fd = sys.datagram(4);
      for (; fd !== other; fd = sys.datagram(4)) successors.push(fd);
      successors.push(fd);
      loop.watch(fd, noting(late), INTEREST.readable);
    },
    failed: () => undefined,
  });
  loop.watch(one, closing('one', two), INTEREST.readable);
  loop.watch(two, closing('two', one), INTEREST.readable);
  sys.write(oneEnd, memory, 1);
  sys.write(twoEnd, memory, 1);
  t.equal(loop.turn(1000), 2, 'both are ready in one wait');
  t.equal(calls.length, 1);
  loop.turn(0);
  t.same(late, []);
  for (const fd of [oneEnd, twoEnd, ...successors, calls[0] === 'one' ? one : two]) loop.close(fd);
});

linuxTest('a pollable that requests it is called again, in a turn that does not wait', (t) => {
  const sys = newSys();
  const loop = newLoop(t, sys);
  const [one, other] = connectedPair(sys);
  const masks: number[] = [];
  const events: number[] = [];
  loop.again(noting(masks));
  loop.turn(-1);
  loop.turn(0);
  t.same(masks, [0]);
  loop.watch(one, noting(events), INTEREST.readable);
  sys.write(other, new Pinned(sys.ffi, 1), 1);
  loop.again(noting(masks));
  loop.turn(-1);
  t.same([masks, events], [[0, 0], [INTEREST.readable]], 'as is one with an event');
  for (const fd of [one, other]) loop.close(fd);
});

linuxTest('a bug costs one socket and is reported', (t) => {
  const sys = newSys();
  const faults: unknown[] = [];
  const loop = new Loop(sys, (error) => faults.push(error));
  t.teardown(() => loop.end());
  const [one, other] = connectedPair(sys);
  const masks: number[] = [];
  const mistake = new Error('a mistake');
  loop.watch(one, {
    ready() {
      throw mistake;
    },
    failed: () => loop.close(one),
  });
  loop.watch(other, noting(masks));
  loop.turn(1000);
  loop.turn(0);
  t.same(faults, [mistake]);
  t.ok(masks.length > 0);
  loop.close(other);
});

linuxTest('a turn lasts until the next timer, and runs it', (t) => {
  const loop = newLoop(t);
  let ran = 0;
  loop.clock.setTimer(20, () => (ran += 1));
  loop.turn();
  t.equal(ran, 1);
  t.equal(loop.turn(0), 0);
  t.equal(ran, 1);
});

linuxTest('timers run between turns, in order, and report how long a wait may take', (t) => {
  let now = 1000;
  const clock = new LoopClock(() => now);
  const ran: string[] = [];
  const note = (name: string) => (): void => void ran.push(name);
  t.equal(clock.waitMs(), -1, 'for ever');
  clock.setTimer(50, note('50'));
  const late = clock.setTimer(55, note('55'));
  clock.setTimer(20.5, () => {
    ran.push('20');
    clock.setTimer(0, note('0'));
    late.cancel();
  });
  const cancelled = clock.setTimer(10, note('10'));
  t.equal(clock.waitMs(), 10);
  cancelled.cancel();
  const turnAt = (time: number): void => {
    now = time;
    t.not(clock.now(), now, 'time passes from turn to turn');
    clock.tick();
    clock.run();
  };
  turnAt(1020);
  t.same(ran, []);
  t.equal(clock.waitMs(), 1, 'rounded up, so that it is due then');
  turnAt(1060);
  t.same(ran, ['20', '50']);
  t.equal(clock.waitMs(), 0);
  clock.run();
  t.same(ran, ['20', '50', '0']);
  t.equal(clock.waitMs(), -1);
});
