import { Loop, LoopClock, type Pollable } from '../../../src/proxysocket/linux/loop.ts';
import { Pinned } from '../../../src/proxysocket/linux/sys/memory.ts';
import { INTEREST } from '../../../src/proxysocket/linux/sys/poller.ts';
import { connectedPair, linuxTest, newLoop, newSys } from '../../support/linux-sys.ts';

/** Notes the masks that it is called with. */
function noting(masks: number[], then: () => void = () => undefined): Pollable {
  return {
    ready(mask) {
      masks.push(mask);
      then();
    },
    failed: () => undefined,
  };
}

linuxTest('an old event is not taken for one of a new socket with the same number', (t) => {
  const sys = newSys();
  const loop = newLoop(t, sys);
  const [one, oneEnd] = connectedPair(sys);
  const [two, twoEnd] = connectedPair(sys);
  const memory = new Pinned(sys.ffi, 1);
  const calls: string[] = [];
  const successors: number[] = [];
  /** The one called first closes the other one and opens a socket, which gets its number. */
  const closing = (name: string, other: number): Pollable => ({
    ready() {
      calls.push(name);
      loop.close(other);
      // Lower numbers may be free, too, and come first.
      let fd = sys.sockets.datagram(4);
      for (; fd !== other; fd = sys.sockets.datagram(4)) successors.push(fd);
      successors.push(fd);
      loop.watch(
        fd,
        noting([], () => calls.push('successor')),
        INTEREST.readable,
      );
    },
    failed: () => undefined,
  });
  loop.watch(one, closing('one', two), INTEREST.readable);
  loop.watch(two, closing('two', one), INTEREST.readable);
  sys.sockets.write(oneEnd, memory, 1);
  sys.sockets.write(twoEnd, memory, 1);
  t.equal(loop.turn(1000), 2, 'both are ready in one wait');
  t.equal(calls.length, 1);
  loop.turn(0);
  t.notOk(calls.includes('successor'));
  for (const fd of [oneEnd, twoEnd, ...successors, calls[0] === 'one' ? one : two]) loop.close(fd);
});

linuxTest('a descriptor can be assigned, unwatched, and watched again', (t) => {
  const sys = newSys();
  const loop = newLoop(t, sys);
  const [one, other] = connectedPair(sys);
  const [first, second]: [number[], number[]] = [[], []];
  t.equal(loop.watch(one, noting(first), INTEREST.readable), 0);
  sys.sockets.write(other, new Pinned(sys.ffi, 1), 1);
  loop.turn(1000);
  loop.handOver(one, noting(second));
  loop.turn(0);
  t.same([first.length, second.length], [1, 1]);
  loop.unwatch(one);
  loop.turn(0);
  t.equal(second.length, 1);
  t.equal(loop.watch(one, noting(second), INTEREST.readable), 0);
  loop.turn(0);
  t.equal(second.length, 2);
  t.ok(loop.watch(-1, noting([])) < 0);
  loop.close(one);
  loop.close(other);
});

linuxTest('a pollable that requests it is called again, after the events, once per turn', (t) => {
  const loop = newLoop(t);
  const masks: number[] = [];
  const greedy = noting(masks, () => {
    if (masks.length < 3) loop.again(greedy);
  });
  let ends = 0;
  loop.atTurnEnd({ endTurn: () => (ends += 1) });
  loop.again(greedy);
  t.equal(loop.hasWork, true);
  for (const calls of [1, 2, 3, 3]) {
    loop.turn(loop.hasWork ? -1 : 0);
    t.equal(masks.length, calls);
  }
  t.same(masks, [0, 0, 0]);
  t.equal(ends, 4);
  t.equal(loop.turns, 4);
});

linuxTest('a bug costs one socket and is reported', (t) => {
  const sys = newSys();
  const faults: unknown[] = [];
  const loop = new Loop(sys, { onFault: (error) => faults.push(error) });
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

linuxTest('timers run between turns, in order, and report how long a wait may take', (t) => {
  let now = 1000;
  const clock = new LoopClock(() => now);
  const ran: string[] = [];
  t.equal(clock.waitMs(), -1, 'for ever');
  clock.setTimer(50, () => ran.push('50'));
  clock.setTimer(20.5, () => {
    ran.push('20');
    clock.setTimer(0, () => ran.push('0'));
  });
  const cancelled = clock.setTimer(10, () => ran.push('10'));
  t.equal(clock.waitMs(), 10);
  cancelled.cancel();

  now = 1020;
  clock.tick();
  clock.run();
  t.same(ran, []);
  t.equal(clock.waitMs(), 1, 'rounded up, so that it is due then');
  now = 1060;
  t.equal(clock.now(), 1020, 'time passes from turn to turn');
  clock.tick();
  clock.run();
  t.same(ran, ['20', '50']);
  t.equal(clock.waitMs(), 0);
  clock.run();
  t.same(ran, ['20', '50', '0']);
  t.equal(clock.waitMs(), -1);
});

linuxTest('a timer that is cancelled by another one that is due does not run', (t) => {
  let now = 0;
  const clock = new LoopClock(() => now);
  const ran: string[] = [];
  const second = { cancel: (): void => undefined };
  clock.setTimer(1, () => {
    ran.push('first');
    second.cancel();
  });
  Object.assign(
    second,
    clock.setTimer(2, () => ran.push('second')),
  );
  now = 10;
  clock.tick();
  clock.run();
  t.same(ran, ['first']);
  t.equal(clock.waitMs(), -1);
});
