import t from 'tap';
import { readRestArgs } from '../../bench/rest/command.ts';
import { countCalls, totalCalls } from '../../bench/rest/calls.ts';
import { connectionsBeside, sessionsWithin } from '../../bench/rest/measure.ts';
import { eachRows, restResults, restRows, type RestReport } from '../../bench/rest/report.ts';
import { heapIn } from '../../bench/rest/scene.ts';

const of = (heap: number, anonymous: number) => ({ heap, anonymous });
const MIB = 1024 ** 2;

const report: RestReport = {
  date: '2026-01-02',
  machine: { cpu: 'Some CPU', cores: 2, memoryGiB: 4, system: 'Linux 6', node: 'v26.0.0' },
  descriptors: 20_000,
  plan: {
    engines: ['node'],
    connections: 9800,
    sessions: 10_000,
    servicePorts: 10_000,
    endpoints: 10_000,
    idleSeconds: 5,
  },
  results: [
    {
      engine: 'node',
      connection: of(2048, 4096),
      session: of(1024, 2048),
      servicePort: of(5120, 10_240),
      endpoint: of(512, 1024),
      base: of(20 * MIB, 90 * MIB),
      idle: { cpu: 0.1, calls: { epoll_pwait: 20.4 } },
      idleWithConnections: { cpu: 0.2, calls: { epoll_pwait: 20, read: 1 } },
      together: {
        connections: 4800,
        memory: of(100 * MIB, 300 * MIB),
        idle: { cpu: 0.3, calls: undefined },
      },
    },
  ],
};

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

t.test('the page says what is on the heap and what the process keeps', (t) => {
  t.same(eachRows(report)[1], [
    'node',
    '2.00 / 4.00',
    '1.00 / 2.00',
    '5.00 / 10.00',
    '0.50 / 1.00',
  ]);
  t.same(
    restRows(report).map((row) => row[2]),
    ['its own MiB', '90', '128', '300'],
  );
  const { machine, tables } = restResults(report);
  t.match(machine, 'Some CPU, 2 cores');
  t.same(Object.values(tables), [eachRows(report), restRows(report)]);
  const metrics =
    '# TYPE nodejs_heap_size_used_bytes gauge\nnodejs_heap_size_used_bytes 2000\nnodejs_external_memory_bytes 500\n';
  t.equal(heapIn(metrics), 2500);
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
