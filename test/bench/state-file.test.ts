import t from 'tap';
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
