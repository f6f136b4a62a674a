import t from 'tap';
import { Pace } from '../../../src/portal/rules/pace.ts';

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
  t.equal(pace.intervalMs, 350);
  pace.note({ reason: 'change', changes: added(5000) }, 5);
  t.equal(pace.intervalMs, 200, 'but no closer than this');
  const gone = added(5500).map(({ set, key }) => {
    return { set, key, before: '1', after: undefined };
  });
  pace.note({ reason: 'change', changes: gone }, 5);
  t.equal(pace.intervalMs, 500);
  t.end();
});
