import t from 'tap';
import { readSoakArgs } from '../../bench/soak/command.ts';
import { measureSoak } from '../../bench/soak/measure.ts';

t.test('parses its command line', async (t) => {
  t.strictSame(readSoakArgs([]), { events: 1_000_000, services: 200, writeDocs: false });
  t.match(readSoakArgs(['--events', '2000', '--services=5']), { events: 2000, services: 5 });
  for (const flags of [
    ['--events', '10'],
    ['--events', 'many'],
    ['--services', '0'],
  ]) {
    t.throws(() => readSoakArgs(flags), TypeError, flags.join(' '));
  }
});

t.test(
  'events go through kube to-api to its clients',
  { skip: process.platform !== 'linux' && 'only on linux' },
  async (t) => {
    const { marks, watched, lists, changeSets } = await measureSoak(
      { events: 8000, services: 50 },
      () => {},
    );
    t.equal(marks.at(-1)?.events, 8000);
    // All but those of the burst whose versions are lost; a tenth of each burst deletes what is not there.
    t.ok(watched >= 7 * 900, `${watched} events over watches`);
    t.ok(lists > 3, `${lists} lists: versions were lost`);
    t.ok(changeSets >= 3 * 8, `${changeSets} change sets`);
  },
);
