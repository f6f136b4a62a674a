import t from 'tap';
import { DeadlineQueue } from '../../../src/proxysocket/core/timers.ts';
import { EndpointIndex } from '../../../src/proxysocket/tcp/shared.ts';
import { FakeClock } from '../../support/fake-clock.ts';

t.test('DeadlineQueue: one timer, in order, and what was removed stays silent', (t) => {
  const clock = new FakeClock();
  const due: string[] = [];
  const queue = new DeadlineQueue<string>(clock, 100, (item) => due.push(item));
  queue.add('a');
  clock.advance(40);
  const b = queue.add('b');
  queue.add('c');
  t.equal(clock.pending, 1);
  clock.advance(59);
  t.same(due, []);
  clock.advance(1);
  t.same(due, ['a']);
  b.remove();
  t.equal(queue.size, 1);
  clock.advance(40);
  t.same(due, ['a', 'c']);
  t.equal(clock.pending, 0);
  t.end();
});

t.test('DeadlineQueue: an item may be added anew when it falls due', (t) => {
  const clock = new FakeClock();
  const due: [string, number][] = [];
  const queue = new DeadlineQueue<string>(clock, 100, (item) => {
    due.push([item, clock.now()]);
    if (due.length < 5) queue.add(item);
  });
  queue.add('a');
  clock.advance(30);
  queue.add('b');
  clock.advance(1000);
  t.same(due, [
    ['a', 100],
    ['b', 130],
    ['a', 200],
    ['b', 230],
    ['a', 300],
    ['b', 330],
  ]);
  t.end();
});

t.test('DeadlineQueue: after a pause of the loop sockets come first', (t) => {
  for (const pause of [0.5, 300]) {
    const base = new FakeClock();
    let late = 0;
    const clock = {
      now: () => base.now() + late,
      setTimer: (ms: number, callback: () => void) => base.setTimer(ms, callback),
    };
    const due: string[] = [];
    const looks: (() => void)[] = [];
    const queue = new DeadlineQueue<string>(
      clock,
      100,
      (item) => due.push(item),
      (callback) => looks.push(callback),
    );
    const answered = queue.add('answered meanwhile');
    queue.add('not answered');
    late = pause;
    base.advance(100);
    t.same(due, []);
    t.equal(base.pending, 0, 'no timer can come first');
    answered.remove();
    looks.pop()?.();
    t.same(due, ['not answered']);
    t.equal(base.pending, 0);
    t.equal(looks.length, 0);
  }
  t.end();
});

t.test('DeadlineQueue: by default that is with the next timer', (t) => {
  const base = new FakeClock();
  let late = 0;
  const clock = {
    now: () => base.now() + late,
    setTimer: (ms: number, callback: () => void) => base.setTimer(ms, callback),
  };
  const due: string[] = [];
  new DeadlineQueue<string>(clock, 100, (item) => due.push(item)).add('a');
  late = 50;
  base.advance(100);
  t.same(due, []);
  base.advance(1);
  t.same(due, ['a']);
  t.equal(base.pending, 0);
  t.end();
});

t.test('EndpointIndex: finds the connections of an endpoint', (t) => {
  const [one, two] = ['one', 'two'].map((text) => ({
    text,
    address: '',
    port: 1,
    family: 4 as const,
  }));
  if (one === undefined || two === undefined) throw new Error('unreachable');
  const index = new EndpointIndex<string>();
  t.same(index.of(one), []);
  const a = index.add(one, 'a');
  index.add(two, 'b');
  index.add(one, 'c');
  t.same(index.of(one), ['a', 'c']);
  a.remove();
  a.remove();
  t.same(index.of(one), ['c']);
  t.same(index.of({ ...one }), [], 'the object counts, not what it says');
  t.same(index.all(), ['b', 'c']);
  t.end();
});
