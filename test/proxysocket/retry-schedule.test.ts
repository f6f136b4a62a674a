import t from 'tap';
import { RetrySchedule } from '../../src/proxysocket/core/retry-schedule.ts';
import { FakeClock } from '../support/fake-clock.ts';

function schedule(atOnce = 10) {
  const clock = new FakeClock();
  const tried: string[][] = [];
  const retries = new RetrySchedule<string>(clock, atOnce, (due) => tried.push([...due]));
  return { clock, tried, retries };
}

t.test('each at its time, with one timer', (t) => {
  const { clock, tried, retries } = schedule();
  retries.set('late', 3000);
  retries.set('soon', 1000);
  retries.set('middle', 2000);
  t.equal(clock.pending, 1);
  clock.advance(999);
  t.same(tried, []);
  clock.advance(1);
  t.same(tried, [['soon']]);
  clock.advance(5000);
  t.same(tried, [['soon'], ['middle'], ['late']]);
  t.equal(clock.pending, 0);
  t.equal(retries.size, 0);
  t.end();
});

t.test('a new time replaces the old one', (t) => {
  const { clock, tried, retries } = schedule();
  retries.set('a', 1000);
  retries.set('a', 5000);
  clock.advance(4999);
  t.same(tried, []);
  clock.advance(1);
  t.same(tried, [['a']]);
  t.end();
});

t.test('at most so many at once, the others after a pause', (t) => {
  const { clock, tried, retries } = schedule(2);
  for (const item of ['a', 'b', 'c', 'd', 'e']) retries.set(item, 1000);
  clock.advance(1000);
  t.same(tried, [['a', 'b']]);
  clock.advance(9);
  t.equal(tried.length, 1);
  clock.advance(1);
  t.same(tried, [
    ['a', 'b'],
    ['c', 'd'],
  ]);
  retries.delete('e');
  t.equal(clock.pending, 0);
  t.end();
});

t.test('nothing is left after clear', (t) => {
  const { clock, tried, retries } = schedule();
  retries.set('a', 10);
  retries.set('b', 20);
  t.same(retries.items(), ['a', 'b']);
  retries.clear();
  clock.advance(100);
  t.same(tried, []);
  t.equal(clock.pending, 0);
  t.end();
});

/** A time that counts how often anybody looks at it. */
function watchedTime(at: number, looks: { count: number }): number {
  const time = {
    valueOf() {
      looks.count += 1;
      return at;
    },
  };
  return time as unknown as number;
}

t.test('what is not due yet is left alone, however many there are', (t) => {
  const clock = new FakeClock();
  const looks = { count: 0 };
  let tried = 0;
  const everyMs = 30_000;
  const retries = new RetrySchedule<number>(clock, 128, (due) => {
    tried += due.length;
    for (const item of due) retries.set(item, watchedTime(clock.now() + everyMs, looks));
  });
  const items = 15_000;
  for (let item = 0; item < items; item += 1) retries.set(item, watchedTime(item * 2, looks));
  clock.advance(2 * everyMs);
  t.ok(tried >= 2 * items, `${tried} were tried`);
  t.ok(looks.count < 100 * tried, `${(looks.count / tried).toFixed(1)} looks for each`);
  t.end();
});

t.test('plans that are given up are forgotten', (t) => {
  const { clock, tried, retries } = schedule();
  const looks = { count: 0 };
  for (let count = 0; count < 10_000; count += 1) retries.set('a', watchedTime(5000, looks));
  looks.count = 0;
  clock.advance(5000);
  t.same(tried, [['a']]);
  t.ok(looks.count < 2000, `${looks.count} looks`);
  retries.set('b', 9000);
  retries.delete('b');
  retries.delete('b');
  clock.advance(5000);
  t.equal(tried.length, 1);
  t.end();
});
