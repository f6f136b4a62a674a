import t from 'tap';
import { RetrySchedule } from '../../src/proxysocket/core/timers.ts';
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

t.test('thousands of plans are looked at ten times a second, not for each of them', (t) => {
  const { clock, tried, retries } = schedule(128);
  let looks = 0;
  const setTimer = clock.setTimer.bind(clock);
  clock.setTimer = (ms, callback) => {
    looks += 1;
    return setTimer(ms, callback);
  };
  for (let item = 0; item < 10_000; item += 1) retries.set(String(item), 1000 + item);
  clock.advance(60_000);
  t.equal(tried.flat().length, 10_000);
  t.ok(looks < 300, `${looks} looks`);
  t.end();
});

t.test('a plan that is given up is forgotten', (t) => {
  const { clock, tried, retries } = schedule();
  retries.set('b', 9000);
  retries.delete('b');
  retries.delete('b');
  t.equal(clock.pending, 0);
  clock.advance(10_000);
  t.same(tried, []);
  t.end();
});
