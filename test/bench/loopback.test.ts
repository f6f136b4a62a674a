import { join } from 'node:path';
import t from 'tap';
import { readLoopbackArgs, runLoopback } from '../../bench/loopback/command.ts';

t.test('npm run bench measures each load with each peer', async (t) => {
  const lines: string[] = [];
  const json = join(t.testdir(), 'loopback.json');
  const plan = readLoopbackArgs(['--rounds=1', '--seconds=0.3', `--json=${json}`]);
  await runLoopback(
    { ...plan, idleSizes: [2] },
    (line) => lines.push(line),
    () => undefined,
  );
  const text = lines.join('\n');
  t.match(text, /^ +unit +direct +kpng-userspace +pipe\(\)$/m);
  t.match(text, /^bulk TCP, client to endpoint, 1 stream +GB\/s( +[\d.]+){3}$/m);
  t.match(text, /^UDP round trips, 64 clients +k\/s( +[\d.]+(, [\d.]+ % lost)?){3}$/m);
  t.match(text, /^2 service ports +\d+/m);
  t.notMatch(text, /^missing/m);
});
