/** to-callout as a program, against a server that speaks real gRPC. */
import { chmodSync, existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { startCli } from '../support/cli.ts';
import { startKpngServer } from '../support/kpng-server.ts';
import { reset, service, setService, sync } from '../support/messages.ts';
import { until } from '../support/until.ts';

if (process.platform === 'win32') t.plan(0, 'the programs are shell scripts');

/** The program with a script for its callouts, which has `$OUT` as a folder of its own, and a first state. */
async function start(t: Test, source: string, ...flags: string[]) {
  const folder = t.testdir({ callout: `#!/bin/sh\nOUT='${t.testdirName}'\n${source}\n` });
  const program = join(folder, 'callout');
  chmodSync(program, 0o755);
  const server = await startKpngServer();
  t.teardown(() => server.stop());
  const line = ['local', `--api=127.0.0.1:${server.port}`, 'to-callout', '--callout', program];
  const cli = startCli(t, [...line, '-v=1', ...flags]);
  const stream = await server.stream();
  await stream.request();
  stream.send(reset, setService(service('demo/a')), sync);
  const read = (name: string): string => {
    const path = join(folder, name);
    return existsSync(path) ? readFileSync(path, 'utf8') : '';
  };
  return { cli, program, read };
}

t.test('a failure is logged with the standard error, counted, and retried', async (t) => {
  const { cli, program, read } = await start(
    t,
    'cat >"$OUT/last"; [ -e "$OUT/failed" ] && exit 0; : >"$OUT/failed"; echo "no rules" >&2; exit 3',
    '--error-delay=10ms',
    '--metrics-bind-address=127.0.0.1:0',
  );
  t.match(await cli.line('Callout failed'), {
    level: 'error',
    code: 'KPNG_CALLOUT_FAILED',
    err: `${program} ended with code 3`,
    stderr: 'no rules',
  });
  const again = await cli.line('Applying a change failed; retrying');
  t.match(again, { code: 'KPNG_SINK_FAILED', waiting: 1 });
  await cli.line('Callout completed');
  t.match(read('last'), /"Name":"a"/, 'with the state, though nothing new has come');
  const url = String((await cli.line('Serving metrics'))['url']);
  const page = await (await fetch(`${url}/metrics`)).text();
  t.match(page, /kpng_userspace_callout_runs_total\{result="exit"\} 1\n/);
  t.match(page, /kpng_userspace_callout_runs_total\{result="ok"\} 1\n/);
  t.match(page, /kpng_userspace_sink_failures_total 1\n/);
});

for (const [signals, drainTimeout, code] of [
  ['TERM, which waits as long as the drain timeout says', '50ms', 0],
  ['a second TERM', '1h', 1],
] as const) {
  t.test(`${signals}, leaves no program behind`, async (t) => {
    const script = 'echo $$ >"$OUT/pid"; exec sleep 1000';
    const { cli, read } = await start(t, script, `--drain-timeout=${drainTimeout}`);
    await until(() => read('pid').endsWith('\n'));
    cli.kill('SIGTERM');
    await cli.line('Stopping');
    if (code === 1) cli.kill('SIGTERM');
    t.equal((await cli.exited).code, code);
    t.equal(
      cli.log.some(({ msg }) => msg === 'Callout stopped'),
      code === 0,
    );
    await until(() => !isThere(Number(read('pid'))));
  });
}

/** The process that adopts orphans may not have done so yet. */
function isThere(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}
