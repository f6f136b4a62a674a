import t from 'tap';
import { Pace } from '../../../src/portal/watch.ts';

function added(count: number) {
  return Array.from({ length: count }, (_, n) => {
    return { set: 'a', key: String(n), before: undefined, after: '1' };
  });
}

t.test('looks are half a second apart as long as all is written in less', (t) => {
  const pace = new Pace();
  t.equal(pace.intervalMs, 500);
  pace.note({ reason: 'start', changes: added(1000) }, 300);
  t.equal(pace.intervalMs, 500);
  pace.note({ reason: 'repair', changes: [] }, 5000);
  t.equal(pace.intervalMs, 500, 'a repair may have been about a part, or may have waited');
  t.end();
});

t.test('they come closer the more there is to write', (t) => {
  const pace = new Pace();
  pace.note({ reason: 'start', changes: added(1000) }, 300);
  pace.note({ reason: 'change', changes: added(500) }, 5);
  t.equal(
    pace.intervalMs,
    250,
    'what takes 0.45 s leaves as much, and every second look is where one was before',
  );
  pace.note({ reason: 'change', changes: added(5000) }, 5);
  t.equal(pace.intervalMs, 200, 'but no closer than this');
  const gone = added(5500).map(({ set, key }) => {
    return { set, key, before: '1', after: undefined };
  });
  pace.note({ reason: 'change', changes: gone }, 5);
  t.equal(pace.intervalMs, 500);
  t.end();
});

t.test('whatever the wait, what is done as often as before falls on a look', (t) => {
  for (const [writeMs, parts] of [
    [0, 1],
    [150, 1],
    [151, 2],
    [525, 2],
    [526, 3],
    [650, 3],
  ] as const) {
    const pace = new Pace(750);
    pace.note({ reason: 'start', changes: added(1) }, writeMs);
    t.equal(pace.intervalMs * parts, 750, `${writeMs} ms`);
  }
  t.end();
});
