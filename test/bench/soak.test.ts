import t from 'tap';
import { MAX_GROWTH, measureSoak } from '../../bench/soak/measure.ts';

const options = { skip: process.platform !== 'linux' && 'only on linux' };

t.test('events go through kube to-api to its clients; its heap stays flat', options, async (t) => {
  const { marks, watched, lists, changeSets, growth } = await measureSoak(
    { events: 24_000, services: 200 },
    () => {},
  );
  t.equal(marks.at(-1)?.events, 24_000);
  t.ok(growth < MAX_GROWTH, `grew by ${growth} bytes`);
  // All but those of the three bursts whose versions are lost; a tenth of each burst deletes what is not there.
  t.ok(watched >= 21 * 900, `${watched} events over watches`);
  t.ok(lists > 3, `${lists} lists: versions were lost`);
  t.ok(changeSets >= 3 * 24, `${changeSets} change sets`);
});
