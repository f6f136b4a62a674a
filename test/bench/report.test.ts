import t from 'tap';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PAGES } from '../../bench/report/page.ts';
import { readResults } from '../../bench/report/results.ts';
import { fillPage } from '../../tools/docs/fill.ts';

t.test('the tables of the pages are those of the data files', (t) => {
  for (const [name, parts] of Object.entries(PAGES)) {
    const path = join(import.meta.dirname, '../../docs', name);
    const made = fillPage(readFileSync(path, 'utf8'), parts(readResults));
    if (process.env['UPDATE_DOCS'] === '1') writeFileSync(path, made);
    t.equal(readFileSync(path, 'utf8'), made, 'UPDATE_DOCS=1 npx tap test/bench/report.test.ts');
  }
  t.end();
});
