import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import t, { type Test } from 'tap';
import { parseFlags } from '../../src/client/run.ts';
import { parseTarget } from '../../src/client/target.ts';
import type { KpngError } from '../../src/errors.ts';
import { run, type ServiceItem } from '../../src/index.ts';
import { startKpngServer } from '../support/kpng-server.ts';
import { endpoint, reset, service, setEndpoint, setService, sync } from '../support/messages.ts';
import { Mailbox } from '../support/until.ts';

const first = [
  reset,
  setService(service('demo/web', { ports: [{ name: 'http', port: 80 }] })),
  setEndpoint('demo/web/web-1', endpoint('10.1.0.6')),
  setEndpoint('demo/web/web-0', endpoint('10.1.0.5')),
  setService(service('demo/api')),
  sync,
];

t.test('a handler gets every service with its endpoints, typed, in order', async (t) => {
  const server = await startKpngServer();
  t.teardown(() => server.stop());
  const calls = new Mailbox<{ items: ServiceItem[]; changed: string[] }>('a call of the handler');
  const stop = new AbortController();
  const running = run(
    async (items, changed) => {
      const port: number | undefined = [...items].at(-1)?.service.ports[0]?.port;
      t.equal(port, 80, 'items may be iterated more than once');
      calls.put({ items: [...items], changed: [...changed].sort() });
    },
    { api: server.target.text, nodeName: 'node-a', signal: stop.signal },
  );
  const stream = await server.stream();
  t.equal((await stream.request()).nodeName, 'node-a');
  stream.send(...first);
  const { items, changed } = await calls.take();
  t.strictSame(changed, ['demo/api', 'demo/web']);
  t.strictSame(items, [
    { key: 'demo/api', service: service('demo/api'), endpoints: [], endpointKeys: [] },
    {
      key: 'demo/web',
      service: service('demo/web', { ports: [{ name: 'http', port: 80 }] }),
      endpoints: [endpoint('10.1.0.5'), endpoint('10.1.0.6')],
      endpointKeys: ['web-0', 'web-1'],
    },
  ]);
  await stream.answer(setEndpoint('demo/api/x', endpoint('10.1.0.7')), sync);
  const next = await calls.take();
  t.strictSame(next.changed, ['demo/api']);
  t.equal(next.items.length, 2, 'the whole state each time');
  stop.abort();
  await running;
});

t.test('once: ends after the first call, or with its error', async (t) => {
  const server = await startKpngServer();
  t.teardown(() => server.stop());
  const answer = async () => {
    await server.answer(...first);
  };
  const errors: KpngError[] = [];
  const onError = (error: KpngError): unknown => errors.push(error);
  const options = { api: server.target.text, once: true, onError };
  let services = 0;
  await Promise.all([run((items) => void (services = [...items].length), options), answer()]);
  t.equal(services, 2);
  const cause = new Error('no');
  const failing = run(() => Promise.reject(cause), options);
  await Promise.all([t.rejects(failing, { code: 'KPNG_SINK_FAILED', cause }), answer()]);
  t.match(errors, [{ code: 'KPNG_SINK_FAILED', message: /A change of 2 services failed: no/ }]);
});

t.test('targets as kpng users write them', async (t) => {
  for (const [text, uri, host] of [
    ['kpng.kube-system.svc:12090', 'dns:kpng.kube-system.svc:12090', 'kpng.kube-system.svc'],
    ['node_1.lan.:65535', 'dns:node_1.lan.:65535', 'node_1.lan'],
    ['[::1]:12090', 'dns:[::1]:12090', '::1'],
    ['dns:kpng:12090', 'dns:kpng:12090', 'kpng'],
    ['dns:///[fd00::1]:12090', 'dns:[fd00::1]:12090', 'fd00::1'],
    ['dns:12090', 'dns:dns:12090', 'dns'],
    ['unix:./run/kpng.sock', 'unix:./run/kpng.sock', 'localhost'],
    ['unix:///k8s/proxy.sock', 'unix:/k8s/proxy.sock', 'localhost'],
  ] as const) {
    t.strictSame(parseTarget(text), { uri, host, text });
  }
});

t.test('anything else is a usage error that names flag and value', async (t) => {
  for (const [text, problem] of [
    ['', /expected a target/],
    ['dns:///kpng', /port is missing/],
    [':12090', /host is missing/],
    ['kpng:0', /"0" is not a port/],
    ['kpng:65536', /not a port/],
    ['127.0.0.1:12090\n', /not a port/],
    ['kpng:80:81', /expected host:port/],
    ['::1:12090', /brackets/],
    ['[::1]', /port is missing/],
    ['[::1', /expected host:port/],
    ['[kpng]:1', /\[kpng\] is not an IPv6 address/],
    ['a b:1', /"a b" is not a host name/],
    ['1.2.3:1', /not a host name/],
    [`${'a'.repeat(64)}:1`, /not a host name/],
    [`${'a.'.repeat(130)}:1`, /not a host name/],
    ['dns://8.8.8.8/kpng:1', /DNS server cannot be chosen/],
    ['multi:///a:1,b:2', /several targets are not supported/],
    ['tcp://127.0.0.1:12090', /scheme "tcp" is not known/],
    ['unix:///', /path of the socket is missing/],
    ['unix://relative', /write unix:relative/],
    ['unix:a\0b', /zero byte/],
    [`unix:///${'a'.repeat(200)}`, /at most 107 bytes/],
  ] as const) {
    const error = { code: 'KPNG_USAGE', message: problem };
    t.throws(() => parseTarget(text), error, JSON.stringify(text));
  }
  t.throws(() => parseTarget('a', '--my-api'), { message: /^--my-api "a": the port is missing/ });
});

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
