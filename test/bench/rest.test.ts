import t from 'tap';
import { readRestArgs } from '../../bench/rest/command.ts';
import { countCalls, totalCalls } from '../../bench/rest/calls.ts';
import { connectionsBeside, sessionsWithin } from '../../bench/rest/measure.ts';

t.test('as many connections are opened as the descriptors of a process allow', (t) => {
  t.equal(connectionsBeside(0, 10_000, 20_000), 9967);
  t.equal(connectionsBeside(10_000, 10_000, 20_000), 4967);
  t.equal(connectionsBeside(0, 10_000, 1 << 20), 10_000);
  t.equal(connectionsBeside(30_000, 10_000, 20_000), 0);
  t.equal(sessionsWithin(10_000, 20_000), 9967);
  t.equal(sessionsWithin(100, 20_000), 100);
  t.end();
});

t.test('contradictory flags are reported', (t) => {
  t.match(readRestArgs(['--engines', 'linux', '--sessions', '7']), {
    engines: ['linux'],
    sessions: 7,
  });
  for (const args of [
    ['--engines', 'carrier'],
    ['--connections', '0'],
    ['--idle', 'x'],
    ['--no'],
  ]) {
    t.throws(() => readRestArgs(args), TypeError, args.join(' '));
  }
  t.end();
});

t.test('system calls are counted by the table that strace writes', (t) => {
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
  t.end();
});
