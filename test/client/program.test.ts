import t, { type Test } from 'tap';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseFlags } from '../../src/client/run.ts';
import { startKpngServer } from '../support/kpng-server.ts';
import { reset, service, setService, sync } from '../support/messages.ts';

const INDEX = pathToFileURL(join(import.meta.dirname, '../../src/index.ts')).href;

t.test('flags and their defaults', async (t) => {
  t.strictSame(parseFlags([]), {
    api: '127.0.0.1:12090',
    nodeName: undefined,
    tls: { key: undefined, crt: undefined, ca: undefined },
    maxMsgSize: 4_194_304,
    errorDelayMs: 1000,
    once: false,
  });
  const given =
    '--api unix:k.sock --node-name=n --tls-key k --tls-crt c --tls-ca a --max-msg-size 99 --error-delay 250ms --once';
  t.strictSame(parseFlags(given.split(' ')), {
    api: 'unix:k.sock',
    nodeName: 'n',
    tls: { key: 'k', crt: 'c', ca: 'a' },
    maxMsgSize: 99,
    errorDelayMs: 250,
    once: true,
  });
});

t.test('invalid values are usage errors', async (t) => {
  for (const [flag, ...values] of [
    ['--max-msg-size', '0', '1e6', '2147483648', ''],
    ['--error-delay', '0', '1', 'soon'],
  ] as const) {
    const error = { code: 'KPNG_USAGE', message: flag };
    for (const value of values) t.throws(() => parseFlags([`${flag}=${value}`]), error, value);
  }
});

/** The three lines of a specialised proxier, started as a program. */
function start(t: Test, args: readonly string[], body = SHORT) {
  const file = join(t.testdir(), 'proxier.mjs');
  writeFileSync(file, `import { run } from '${INDEX}';\n${body}`);
  const env = { PATH: process.env['PATH'] };
  const child = spawn(process.execPath, [file, ...args], {
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  let [stdout, stderr] = ['', ''];
  child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
  const ended = once(child, 'close').then(([code]: unknown[]) => ({ code, stdout, stderr }));
  return { child, ended };
}

const SHORT = `await run(async (items) => {
  for (const { service, endpoints } of items) process.stdout.write(service.name + ' ' + endpoints.length + '\\n');
});`;

t.test('three lines make a program that SIGTERM, SIGINT and SIGQUIT end with 0', async (t) => {
  const server = await startKpngServer();
  t.teardown(() => server.stop());
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGQUIT'] as const) {
    const { child, ended } = start(t, ['--api', server.target.text, '--node-name', 'node-a']);
    const stream = await server.stream();
    t.equal((await stream.request()).nodeName, 'node-a');
    stream.send(reset, setService(service('demo/web')), sync);
    await once(child.stdout, 'data');
    child.kill(signal);
    t.strictSame(await ended, { code: 0, stdout: 'web 0\n', stderr: '' });
  }
  // A second signal ends it at once, though the handler hangs.
  const body = `process.on('SIGINT', () => process.stdout.write('signal'));
    await run(() => { process.stdout.write('called'); return new Promise(() => {}); });`;
  const { child, ended } = start(t, ['--api', server.target.text], body);
  await server.answer(reset, sync);
  for (const _ of ['called', 'signal']) {
    await once(child.stdout, 'data');
    child.kill('SIGINT');
  }
  t.match(await ended, { code: 1 });
});

t.test('it keeps running and trying while there is no server', async (t) => {
  const { child, ended } = start(t, ['--api', '127.0.0.1:1', '--error-delay', '10ms']);
  for (const _ of [1, 2, 3]) await once(child.stderr, 'data');
  child.kill('SIGTERM');
  const stderr = /KPNG_SOURCE_LOST: local API at 127\.0\.0\.1:1: UNAVAILABLE.*ECONNREFUSED/;
  t.match(await ended, { code: 0, stderr });
});

t.test('--help exits with 0, bad usage with 2 and a message', async (t) => {
  t.match(await start(t, ['--help']).ended, { code: 0, stdout: /--node-name/ });
  for (const [args, message] of [
    [['--no-such-flag'], /^error: Unknown option '--no-such-flag'/],
    [['--api', 'nowhere'], /--api "nowhere": the port is missing/],
    [['--tls-ca', '/no/such/file'], /--tls-ca \/no\/such\/file: cannot be read \(ENOENT\)/],
    [['extra'], /^error: Unexpected argument 'extra'/],
  ] as const) {
    const { code, stderr } = await start(t, args).ended;
    t.equal(code, 2, args.join(' '));
    t.match(stderr, message);
    t.notMatch(stderr, /\n\s+at /, 'without a stack');
  }
});

t.test('importing the library loads no gRPC', async (t) => {
  const body = `import { createRequire } from 'node:module';
    const loaded = Object.keys(createRequire(import.meta.url).cache);
    process.stdout.write(typeof run + loaded.filter((path) => /grpc|pino|xxhash/.test(path)));`;
  t.equal((await start(t, [], body).ended).stdout, 'function');
});
