/** to-callout and kpng-callout as programs, against a server that speaks real gRPC. */
import { once } from 'node:events';
import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { spawn } from 'node:child_process';
import t, { type Test } from 'tap';
import { runHere, startCli, type Cli } from '../support/cli.ts';
import { startKpngServer, type KpngServer } from '../support/kpng-server.ts';
import { reset, service, setService, sync } from '../support/messages.ts';
import { until } from '../support/until.ts';

if (process.platform === 'win32') t.plan(0, 'the programs are shell scripts');

const KPNG_CALLOUT = fileURLToPath(new URL('../../bin/kpng-callout.js', import.meta.url));
const LINE = /^{"Service":{"Namespace":"demo","Name":"a".*"Endpoints":null}\n\n$/;

/** A script with `$OUT` as a folder of its own. */
function script(t: Test, source: string) {
  const folder = t.testdir({ callout: `#!/bin/sh\nOUT='${t.testdirName}'\n${source}\n` });
  const program = join(folder, 'callout');
  chmodSync(program, 0o755);
  const file = (name: string): string => join(folder, name);
  const read = (name: string): string =>
    existsSync(file(name)) ? readFileSync(file(name), 'utf8') : '';
  return { program, file, read };
}

async function serve(t: Test): Promise<KpngServer> {
  const server = await startKpngServer();
  t.teardown(() => server.stop());
  return server;
}

function start(t: Test, server: KpngServer, program: string, ...more: string[]): Cli {
  const args = ['local', `--api=127.0.0.1:${server.port}`, 'to-callout', '--callout', program];
  return startCli(t, [...args, ...more]);
}

t.test(
  'the program gets the state at every change; kpng-callout takes it from CALLOUT',
  async (t) => {
    const server = await serve(t);
    const child = spawn(process.execPath, [KPNG_CALLOUT, `--api=127.0.0.1:${server.port}`], {
      env: { ...process.env, CALLOUT: 'cat' },
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    t.teardown(() => child.kill('SIGKILL'));
    let printed = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      printed += text;
    });
    const stream = await server.stream();
    await stream.request();
    stream.send(reset, setService(service('demo/a')), sync);
    await stream.request();
    await until(() => printed.endsWith('\n\n'));
    t.match(printed, LINE);
    printed = '';
    stream.send(setService(service('demo/b')), sync);
    await stream.request();
    await until(() => printed.endsWith('\n\n'));
    t.equal(printed.split('\n').length, 4, 'both services, and the empty line');
    child.kill('SIGTERM');
    t.same(await once(child, 'exit'), [0, null]);
  },
);

t.test('changes that arrive while the program runs are combined', async (t) => {
  const server = await serve(t);
  const { program, file, read } = script(
    t,
    'cat >/dev/null; echo x >>"$OUT/runs"; until [ -e "$OUT/go" ]; do sleep 0.01; done',
  );
  start(t, server, program);
  const stream = await server.stream();
  await stream.request();
  stream.send(reset, setService(service('demo/a')), sync);
  await until(() => read('runs') === 'x\n');
  let asked = false;
  const next = stream.request().then(() => {
    asked = true;
  });
  await new Promise(setImmediate);
  t.notOk(asked, 'the server may gather changes meanwhile');
  writeFileSync(file('go'), '');
  await next;
});

t.test('a failure is logged with the standard error, counted, and retried', async (t) => {
  const server = await serve(t);
  const { program, read } = script(
    t,
    'cat >"$OUT/last"; [ -e "$OUT/failed" ] && exit 0; : >"$OUT/failed"; echo "no rules" >&2; exit 3',
  );
  const cli = start(
    t,
    server,
    program,
    '--error-delay=10ms',
    '--metrics-bind-address=127.0.0.1:0',
    '-v=1',
  );
  const stream = await server.stream();
  await stream.request();
  stream.send(reset, setService(service('demo/a')), sync);
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

t.test(
  'TERM waits for the program as long as the drain timeout says, and then kills it',
  async (t) => {
    const server = await serve(t);
    const { program, read } = script(t, 'echo $$ >"$OUT/pid"; exec sleep 1000');
    const cli = start(t, server, program, '--drain-timeout=50ms', '-v=1');
    const stream = await server.stream();
    await stream.request();
    stream.send(reset, sync);
    await until(() => read('pid').endsWith('\n'));
    cli.kill('SIGTERM');
    t.equal((await cli.exited).code, 0);
    t.throws(() => process.kill(Number(read('pid')), 0), { code: 'ESRCH' });
    t.ok(cli.log.some(({ msg }) => msg === 'Callout stopped'));
  },
);

t.test('a second signal leaves no program behind', async (t) => {
  const server = await serve(t);
  const { program, read } = script(t, 'echo $$ >"$OUT/pid"; exec sleep 1000');
  const cli = start(t, server, program, '--drain-timeout=1h');
  const stream = await server.stream();
  await stream.request();
  stream.send(reset, sync);
  await until(() => read('pid').endsWith('\n'));
  cli.kill('SIGTERM');
  await cli.line('Stopping');
  cli.kill('SIGTERM');
  t.equal((await cli.exited).code, 1);
  await until(() => !isThere(Number(read('pid'))));
});

/** The process that adopts orphans may not have done so yet. */
function isThere(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

t.test('a wrong flag is reported with its name, and so is a wrong CALLOUT', async (t) => {
  const empty = await runHere('local', 'to-callout', '--callout=');
  t.match(empty, { code: 2, stderr: /--callout "": expected the path of a program/ });
  const child = spawn(process.execPath, [KPNG_CALLOUT], {
    env: { ...process.env, CALLOUT: '' },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let stderr = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  t.same(await once(child, 'close'), [2, null]);
  t.match(stderr, /CALLOUT \(for --callout\) "": expected the path/);
});
