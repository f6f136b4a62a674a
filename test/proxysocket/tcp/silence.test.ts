import { Socket } from 'node:net';
import t from 'tap';
import { DeadlineQueue } from '../../../src/proxysocket/core/deadlines.ts';
import { LOOKS, Silence } from '../../../src/proxysocket/tcp/silence.ts';
import { FakeClock } from '../../support/fake-clock.ts';

/** A peer that is watched with a limit of 800 ms. */
function setUp() {
  const clock = new FakeClock();
  const looks = new DeadlineQueue<Silence>(clock, 800 / LOOKS, (silence) => silence.look());
  const towards = { bytes: 0 };
  const peer = Object.assign(new Socket(), { _handle: { writeQueueSize: 0 } });
  const tooLong: number[] = [];
  const silence = new Silence(looks, peer, towards, () => tooLong.push(clock.now()));
  return { clock, looks, towards, peer, tooLong, silence };
}

t.test('a peer that takes nothing is given up after the limit, once', (t) => {
  const { clock, looks, tooLong } = setUp();
  clock.advance(5000);
  t.same(tooLong, [800]);
  t.equal(looks.size, 0);
  t.equal(clock.pending, 0);
  t.end();
});

t.test('whatever goes to it starts the time anew', (t) => {
  const { clock, towards, tooLong } = setUp();
  for (let step = 0; step < 6; step += 1) {
    clock.advance(750);
    towards.bytes += 1;
  }
  t.same(tooLong, []);
  clock.advance(850);
  t.same(tooLong, []);
  clock.advance(50);
  t.equal(tooLong.length, 1, 'and never ends it early');
  t.end();
});

t.test('so does a part of a large chunk', (t) => {
  const { clock, peer, tooLong } = setUp();
  peer._handle.writeQueueSize = 1000;
  for (let step = 0; step < 6; step += 1) {
    clock.advance(750);
    peer._handle.writeQueueSize -= 100;
  }
  t.same(tooLong, []);
  t.end();
});

t.test('a peer that is gone is not looked at any more', (t) => {
  const { clock, looks, tooLong, silence } = setUp();
  clock.advance(350);
  silence.stop();
  silence.stop();
  clock.advance(5000);
  t.same(tooLong, []);
  t.equal(looks.size, 0);
  t.end();
});
