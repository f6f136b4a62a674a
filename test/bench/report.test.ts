import t from 'tap';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PAGES } from '../../bench/report/page.ts';
import { readResults } from '../../bench/report/results.ts';
import { fillPage } from '../../tools/docs/fill.ts';
import { summarize, threeDigits } from '../../bench/report/stats.ts';
import { asMarkdown, asText } from '../../bench/report/table.ts';

t.test('the median is the middle, or between the two in the middle', (t) => {
  t.same(summarize([3, 1, 2]), { median: 2, min: 1, max: 3, samples: 3 });
  t.same(summarize([4, 1, 2, 3]), { median: 2.5, min: 1, max: 4, samples: 4 });
  t.equal(summarize([]), undefined);
  t.end();
});

t.test('figures have three digits that count', (t) => {
  t.same([0, 0.3594, 3.594, 35.94, 359.4, 3594].map(threeDigits), [
    '0',
    '0.359',
    '3.59',
    '35.9',
    '359',
    '3594',
  ]);
  t.end();
});

t.test('columns are aligned, figures to the right', (t) => {
  const rows = [
    ['a', 'b', 'c'],
    ['long', 'x', '12.5'],
  ];
  t.equal(asText(rows), 'a      b      c\nlong   x   12.5');
  t.equal(asMarkdown(rows), '| a | b | c |\n| --- | --- | ---: |\n| long | x | 12.5 |');
  t.end();
});

t.test('the tables of the pages are those of the data files', (t) => {
  for (const [name, parts] of Object.entries(PAGES)) {
    const path = join(import.meta.dirname, '../../docs', name);
    const made = fillPage(readFileSync(path, 'utf8'), parts(readResults));
    if (process.env['UPDATE_DOCS'] === '1') writeFileSync(path, made);
    t.equal(readFileSync(path, 'utf8'), made, 'UPDATE_DOCS=1 npx tap test/bench/report.test.ts');
  }
  t.end();
});
