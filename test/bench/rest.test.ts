import t from 'tap';
import { countCalls, totalCalls } from '../../bench/rest/calls.ts';

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
