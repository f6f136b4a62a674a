/** The benchmark of portals, as far as it can be wrong: that it measures at all, and where. */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import type { PortalReport } from '../../bench/portals/result.ts';
import { totalCalls } from '../../bench/rest/calls.ts';
import type { RestResult } from '../../bench/rest/measure.ts';
import { systemExec } from '../../src/portal/exec.ts';

const MAIN = join(import.meta.dirname, '../../bench/main.ts');

t.test('it measures every portal in namespaces that are gone afterwards', async (t) => {
  const json = join(t.testdir(), 'result.json');
  const few = ['--sizes', '30', '--rounds', '1', '--changes', '2', '--idle', '1', '--json', json];
  const bench = promisify(execFile)(process.execPath, [MAIN, 'portals', ...few]);
  const pid = bench.child.pid ?? 0;
  const { stdout } = await bench;
  t.match(stdout, /^30 +nftables +30 /m);
  const { results } = JSON.parse(readFileSync(json, 'utf8')) as PortalReport;
  const of = (name: string) => results.find(({ subject }) => subject === name);

  t.match(of('nftables'), { servicePorts: 30, served: 30, cold: { samples: 1 } });
  // One writes everything; the others look whether another portal has left something.
  t.ok((of('nftables')?.coldProcesses ?? Infinity) <= 6, 'no process for each service port');
  t.match(of('nftables')?.changes, {
    added: { processes: 1, seen: { samples: 2 }, seenInRow: { samples: 2 }, done: { samples: 2 } },
    endpoint: { processes: 0 },
    removed: { processes: 1 },
  });
  t.match(of('address'), { served: 30, coldProcesses: 0, changes: { added: { processes: 0 } } });
  t.match(of('address, own interface'), { served: 30, changes: { endpoint: { processes: 0 } } });
  for (const { changes, resident } of results) {
    t.ok((changes.added.done?.median ?? 0) > 0);
    t.ok(resident > 0);
  }
  const { stdout: namespaces } = await systemExec({ file: 'ip', args: ['netns', 'list'] });
  t.notMatch(namespaces, `kpngbench-${pid}-`);
});

t.test('it measures a proxy with all of it', async (t) => {
  const json = join(t.testdir(), 'rest.json');
  const few = ['connections', 'sessions', 'service-ports', 'endpoints'].flatMap((flag) => [
    `--${flag}`,
    '400',
  ]);
  const flags = ['--engines', 'node', ...few, '--idle', '1', '--json', json];
  const { stdout } = await promisify(execFile)(process.execPath, [MAIN, 'rest', ...flags]);
  t.match(stdout, /^node +one service /m);
  const { results } = JSON.parse(readFileSync(json, 'utf8')) as { results: RestResult[] };
  const [result] = results;
  t.ok((result?.servicePort.heap ?? 0) > 1000, 'a service port takes something');
  t.ok((result?.connection.heap ?? 0) > 500, 'and so does a connection');
  t.ok((result?.idle.cpu ?? 100) < 50, 'but nothing happens');
  const { calls } = result?.idleWithConnections ?? {};
  // Only where strace is installed.
  t.ok(calls === undefined || totalCalls(calls) < 1000, `${JSON.stringify(calls)} a second`);
  t.equal(result?.together.connections, 400);
});
