import t from 'tap';
import { measureSoak } from '../../bench/soak/measure.ts';

const options = { skip: process.platform !== 'linux' && 'only on linux' };

t.test('events go through kube to-api to its clients', options, async (t) => {
  const { marks, watched, lists, changeSets } = await measureSoak(
    { events: 8000, services: 50 },
    () => {},
  );
  t.equal(marks.at(-1)?.events, 8000);
  // All but those of the burst whose versions are lost; a tenth of each burst deletes what is not there.
  t.ok(watched >= 7 * 900, `${watched} events over watches`);
  t.ok(lists > 3, `${lists} lists: versions were lost`);
  t.ok(changeSets >= 3 * 8, `${changeSets} change sets`);
});
