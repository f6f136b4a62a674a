import t from 'tap';
import { runScrape } from '../../bench/scrape.ts';
import { MAX_GROWTH, measureSoak } from '../../bench/soak/measure.ts';
import { block, json, runStateFile } from '../../bench/state-file.ts';

t.test('the benchmark of state files runs, in both forms', async (t) => {
  const lines: string[] = [];
  const cases = [
    { title: 'many', services: 50, endpoints: 2, write: block, proxied: false },
    { title: 'one', services: 1, endpoints: 100, write: json, proxied: true },
  ];
  t.equal(await runStateFile((line) => lines.push(line), cases), true);
  const measured = lines.filter((line) => /^ {2}\S.* s, longest turn \d+ ms/.test(line));
  t.equal(measured.length, 2 * 5, lines.join('\n'));
});

t.test('a file that cannot be loaded fails it', async (t) => {
  const lines: string[] = [];
  const broken = { title: 'broken', services: 1, endpoints: 1, write: () => 'x', proxied: false };
  t.equal(await runStateFile((line) => lines.push(line), [broken]), false);
  t.match(lines.at(-1), /^FAIL {2}broken: /);
});

const old = typeof (process as { threadCpuUsage?: unknown }).threadCpuUsage !== 'function';
const skip = old && 'this Node cannot report how long a thread works';

t.test('the benchmark of scrapes runs with every engine that works here', { skip }, async (t) => {
  const lines: string[] = [];
  await runScrape((line) => lines.push(line), { servicePorts: 50, scrapes: 2 });
  const [, node = ''] = lines;
  t.match(node, /^engine node +\d\.\d MB in \d+ ms \(median\), longest turn \d+ ms/);
});

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
