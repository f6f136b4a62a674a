import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { PAGES } from '../../bench/report/page.ts';
import { readResults } from '../../bench/report/results.ts';
import { countCalls, totalCalls } from '../../bench/rest/calls.ts';
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

t.test('system calls are counted by the table that strace writes', async (t) => {
  const table = `strace: Process 7 attached with 2 threads
    calls syscall
--------- ----------------
       40 epoll_pwait
        1 mmap
--------- ----------------
       41 total
`;
  t.same(countCalls(table), { epoll_pwait: 40, mmap: 1 });
  t.equal(totalCalls(countCalls(table)), 41);
  t.same(countCalls('strace: Process 7 attached\nstrace: Process 7 detached\n'), {});
  t.throws(() => countCalls('strace: attach: Operation not permitted'), /not permitted/);
});
