/** Where an HTTP server listens, when it starts, and how it ends. */
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { createServer as createHttpServer, type Server } from 'node:http';
import { connect, createServer, type AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import type { HostPort } from '../../src/util/host-port.ts';
import { plain, type HttpResponse } from '../../src/util/http-connections.ts';
import { pagePorts, startHttpServer } from '../../src/util/http-server.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { HELLO, serve } from '../support/http-server.ts';
import { until } from '../support/until.ts';

/** A server for an address that another one has, which `free` ends. */
async function startBlocked(t: Test) {
  const blocker = createServer().listen(0, '127.0.0.1');
  t.teardown(() => blocker.close());
  await once(blocker, 'listening');
  const { port } = blocker.address() as AddressInfo;
  const clock = new FakeClock();
  const waits: number[] = [];
  const listening = Promise.withResolvers<HostPort>();
  const server = startHttpServer({
    address: { host: '127.0.0.1', port },
    answer: () => t.fail('no page was asked for') as never,
    clock,
    onListening: listening.resolve,
    onBindFailed({ code }, retryInMs) {
      t.equal(code, 'KPNG_LISTEN_ADDRESS_IN_USE');
      waits.push(retryInMs);
    },
    onAnswerFailed: () => t.fail('no page was asked for'),
  });
  t.teardown(() => server.close());
  await until(() => waits.length === 1);
  return { blocker, port, clock, waits, listening: listening.promise, server };
}

t.test('an address that is taken is retried with growing waits, until it is closed', async (t) => {
  const closed = await startBlocked(t);
  t.equal(closed.clock.pending, 1);
  await closed.server.close();
  await closed.server.close();
  t.equal(closed.clock.pending, 0);
  const { blocker, port, clock, waits, listening } = await startBlocked(t);
  for (let n = 2; n <= 7; n += 1) {
    clock.advance(waits.at(-1) ?? 0);
    await until(() => waits.length === n);
  }
  t.same(waits, [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
  blocker.close();
  await once(blocker, 'close');
  clock.advance(30_000);
  t.match(await listening, { host: '127.0.0.1', port });
});

t.test('clients that cannot be accepted do not end it, nor make it listen again', async (t) => {
  let made: Server | undefined;
  const clock = new FakeClock();
  const { url } = await serve(t, HELLO, {
    clock,
    create: (times, listener) => (made = createHttpServer(times, listener)),
    onBindFailed: () => t.fail('it listens'),
  });
  const error = Object.assign(new Error('accept EMFILE'), { code: 'EMFILE' });
  for (let n = 0; n < 2; n += 1) made?.emit('error', error);
  t.equal((await fetch(url('/hello'))).status, 200);
  t.equal(clock.pending, 0);
});

t.test('closing ends connections, even of clients that wait for their answer', async (t) => {
  const pages = { '/slow': () => new Promise<never>(() => undefined) };
  const { server, address, ask, asked } = await serve(t, pages);
  const client = await ask('/slow');
  await until(() => asked.length === 1);
  const closed = once(client, 'close');
  await server.close();
  await closed;
  await t.rejects(fetch(`http://127.0.0.1:${address.port}/hello`));
});

t.test('a client that has connected is answered when another process takes over', async (t) => {
  const { promise: slow, resolve: answer } = Promise.withResolvers<HttpResponse>();
  const pages = { ...HELLO, '/slow': () => slow };
  const { server, address, url, ask, asked } = await serve(t, pages);
  const waiting = await ask('/slow');
  await until(() => asked.length === 1);
  const kept = await ask('/hello');
  await once(kept, 'data');
  t.same(pagePorts(), [address.port]);
  const late = connect(address.port, address.host);
  await once(late, 'connect');
  // It has been accepted when a later one has been answered.
  await (await fetch(url('/hello'))).text();
  const left = server.leave();
  await once(kept, 'close');
  await t.rejects(fetch(url('/hello')), 'no new one');
  let text = '';
  late.setEncoding('latin1').on('data', (part: string) => (text += part));
  late.write('GET /hello HTTP/1.1\r\nhost: x\r\n\r\n');
  await once(late, 'close');
  t.match(text, /^HTTP\/1.1 200 OK\r\n[^]*connection: close\r\n[^]*hello\n$/i);
  const closed = once(waiting, 'close');
  const begin = performance.now();
  answer(plain(200, 'slow\n'));
  t.match(String((await once(waiting, 'data'))[0]), /slow\n$/);
  await Promise.all([closed, left]);
  t.ok(performance.now() - begin < 4000, 'at once, before it has been idle for long');
  t.same(pagePorts(), []);
});

t.test('a silent client does not delay the end when another process takes over', async (t) => {
  const clock = new FakeClock();
  const { server, address, url } = await serve(t, HELLO, { clock });
  const silent = connect(address.port, address.host);
  await once(silent, 'connect');
  await (await fetch(url('/hello'))).text();
  const left = server.leave();
  clock.advance(5000);
  await Promise.all([left, once(silent, 'close')]);
  await server.close();
});

const SERVER = import.meta.resolve('../../src/util/http-server.ts');

t.test('a server does not load the HTTP client of 15 MB', async (t) => {
  const script = `await import(${JSON.stringify(SERVER)}); console.log(process.moduleLoadList.join('\\n'))`;
  const loaded = execFileSync(process.execPath, ['--input-type=module', '-e', script]).toString();
  t.match(loaded, /NativeModule _http_server/);
  t.notMatch(loaded, /undici/);
});
