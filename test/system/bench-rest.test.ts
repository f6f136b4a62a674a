/** The benchmark of a proxy at rest, as far as it can be wrong: that it measures at all. */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { totalCalls } from '../../bench/rest/calls.ts';
import type { RestResult } from '../../bench/rest/measure.ts';

const MAIN = join(import.meta.dirname, '../../bench/main.ts');

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
