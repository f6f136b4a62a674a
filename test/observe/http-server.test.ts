import { tracingChannel } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { get, request } from 'node:http';
import { connect, createServer, type AddressInfo, type Server } from 'node:net';
import t, { type Test } from 'tap';
import {
  MAX_HTTP_CONNECTIONS,
  plain,
  startHttpServer,
  type HttpServer,
  type HttpServerOptions,
  type Page,
} from '../../src/observe/http-server.ts';
import type { HostPort } from '../../src/util/host-port.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { until } from '../support/until.ts';

interface Running {
  readonly server: HttpServer;
  readonly address: HostPort;
  readonly failures: [string, unknown][];
  readonly url: (path: string) => string;
}

/** What Node tells about a server that starts to listen. */
interface Listening {
  readonly server: Server;
}

const HELLO: Page = { summary: 'says hello', answer: () => plain(200, 'hello\n') };

/** Starts a server on a free port of loopback, until the test ends. */
async function serve(
  t: Test,
  pages: Record<string, Page>,
  options: Partial<HttpServerOptions> = {},
): Promise<Running> {
  const failures: [string, unknown][] = [];
  return new Promise((resolve, reject) => {
    const server = startHttpServer({
      address: { host: '127.0.0.1', port: 0 },
      pages: new Map(Object.entries(pages)),
      clock: new FakeClock(),
      onBindFailed: reject,
      onPageFailed: (path, error) => failures.push([path, error]),
      onListening: (address) =>
        resolve({
          server,
          address,
          failures,
          url: (path) => `http://127.0.0.1:${address.port}${path}`,
        }),
      ...options,
    });
    t.teardown(() => server.close());
  });
}

t.test('a page is served to GET and HEAD, whatever the query', async (t) => {
  const { url } = await serve(t, { '/hello': HELLO });
  const response = await fetch(url('/hello?x=1'));
  t.equal(response.status, 200);
  t.equal(await response.text(), 'hello\n');
  t.equal(response.headers.get('content-type'), 'text/plain; charset=utf-8');
  t.equal(response.headers.get('x-content-type-options'), 'nosniff');
  const head = await fetch(url('/hello'), { method: 'HEAD' });
  t.equal(head.headers.get('content-length'), '6');
  t.equal(await head.text(), '');
});

t.test('the index lists the pages; a wrong path is told so', async (t) => {
  const { url } = await serve(t, { '/hello': HELLO });
  const index = await fetch(url('/'));
  t.equal(index.status, 200);
  t.match(await index.text(), /^\/hello +says hello\n$/);
  const wrong = await fetch(url('/nothing'));
  t.equal(wrong.status, 404);
  t.match(await wrong.text(), /No such page.*says hello/s);
});

t.test('other methods are refused by name', async (t) => {
  const { url } = await serve(t, { '/hello': HELLO });
  const response = await fetch(url('/hello'), { method: 'POST', body: 'x' });
  t.equal(response.status, 405);
  t.equal(response.headers.get('allow'), 'GET, HEAD');
  t.match(await response.text(), /POST is not served/);
});

t.test('a page in pieces is streamed', async (t) => {
  const pages: Record<string, Page> = {
    '/long': {
      summary: 'long',
      answer: () => ({
        status: 200,
        type: 'text/plain',
        body: (async function* () {
          for (let n = 0; n < 1000; n += 1) yield `${n}\n`;
        })(),
      }),
    },
  };
  const { url, failures } = await serve(t, pages);
  const text = await (await fetch(url('/long'))).text();
  t.equal(text.split('\n').length, 1001);
  t.equal((await fetch(url('/long'), { method: 'HEAD' })).status, 200);
  t.same(failures, []);
});

t.test('a page that cannot be made is a 500 and is reported; the server goes on', async (t) => {
  const error = new Error('no');
  const pages: Record<string, Page> = {
    '/bad': {
      summary: 'fails',
      answer() {
        throw error;
      },
    },
    '/half': {
      summary: 'fails in the middle',
      answer: () => ({
        status: 200,
        type: 'text/plain',
        body: (async function* () {
          yield 'first half\n';
          throw error;
        })(),
      }),
    },
    '/hello': HELLO,
  };
  const { url, failures } = await serve(t, pages);
  t.equal((await fetch(url('/bad'))).status, 500);
  await t.rejects(async () => (await fetch(url('/half'))).text(), 'a half page is not a whole one');
  t.equal(await (await fetch(url('/hello'))).text(), 'hello\n');
  t.same(failures, [
    ['/bad', error],
    ['/half', error],
  ]);
});

t.test('a client that leaves in the middle of a page ends its making', async (t) => {
  let ended: () => void = () => {};
  const end = new Promise<void>((resolve) => {
    ended = resolve;
  });
  const pages: Record<string, Page> = {
    '/endless': {
      summary: 'never ends',
      answer: () => ({
        status: 200,
        type: 'text/plain',
        body: (async function* () {
          try {
            for (;;) yield 'x'.repeat(65_536);
          } finally {
            ended();
          }
        })(),
      }),
    },
  };
  const { url, failures } = await serve(t, pages);
  const client = get(url('/endless'));
  const [response] = (await once(client, 'response')) as [{ destroy(): void }];
  response.destroy();
  await end;
  t.same(failures, [], 'that is no failure of the page');
});

t.test('an address that is taken is tried again with growing waits', async (t) => {
  const blocker = createServer().listen(0, '127.0.0.1');
  await once(blocker, 'listening');
  const { port } = blocker.address() as AddressInfo;
  const clock = new FakeClock();
  const waits: number[] = [];
  const listening = Promise.withResolvers<HostPort>();
  let failed = Promise.withResolvers<void>();
  const server = startHttpServer({
    address: { host: '127.0.0.1', port },
    pages: new Map(),
    clock,
    onListening: listening.resolve,
    onBindFailed(error, retryInMs) {
      t.match(error, { code: 'EADDRINUSE' });
      waits.push(retryInMs);
      failed.resolve();
    },
    onPageFailed: () => t.fail('no page was asked for'),
  });
  t.teardown(() => server.close());
  for (let n = 0; n < 7; n += 1) {
    await failed.promise;
    failed = Promise.withResolvers();
    if (n < 6) clock.advance(waits.at(-1) ?? 0);
  }
  t.same(waits, [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
  blocker.close();
  await once(blocker, 'close');
  clock.advance(30_000);
  t.match(await listening.promise, { host: '127.0.0.1', port });
});

t.test('closing while it waits for its address leaves no timer', async (t) => {
  const blocker = createServer().listen(0, '127.0.0.1');
  t.teardown(() => blocker.close());
  await once(blocker, 'listening');
  const clock = new FakeClock();
  const failed = Promise.withResolvers<void>();
  const server = startHttpServer({
    address: { host: '127.0.0.1', port: (blocker.address() as AddressInfo).port },
    pages: new Map(),
    clock,
    onListening: () => t.fail('the address is taken'),
    onBindFailed: () => failed.resolve(),
    onPageFailed: () => t.fail('no page was asked for'),
  });
  await failed.promise;
  t.equal(clock.pending, 1);
  await server.close();
  await server.close();
  t.equal(clock.pending, 0);
});

t.test('clients that cannot be accepted do not end it, nor make it listen twice', async (t) => {
  const servers: Server[] = [];
  const watch = { asyncStart: (message: object) => servers.push((message as Listening).server) };
  tracingChannel('net.server.listen').subscribe(watch);
  t.teardown(() => tracingChannel('net.server.listen').unsubscribe(watch));
  const bindFailures: Error[] = [];
  const clock = new FakeClock();
  const { url } = await serve(
    t,
    { '/hello': HELLO },
    { clock, onBindFailed: (error) => bindFailures.push(error) },
  );
  const noDescriptor = Object.assign(new Error('accept EMFILE'), { code: 'EMFILE' });
  for (const server of [...servers, ...servers]) server.emit('error', noDescriptor);
  t.equal(servers.length, 1);
  t.same(bindFailures, []);
  t.equal(clock.pending, 0);
  t.equal((await fetch(url('/hello'))).status, 200);
});

t.test('closing cuts clients that keep their connection', async (t) => {
  const { server, address } = await serve(t, { '/hello': HELLO });
  const client = connect(address.port, '127.0.0.1');
  client.on('error', () => {});
  client.write('GET /hello HTTP/1.1\r\nHost: x\r\n\r\n');
  await once(client, 'data');
  const closed = once(client, 'close');
  await server.close();
  await closed;
  await t.rejects(fetch(`http://127.0.0.1:${address.port}/hello`));
});

t.test('whoever has connected is answered when another process takes over', async (t) => {
  const { server, address, url } = await serve(t, { '/hello': HELLO });
  const kept = connect(address.port, address.host);
  await once(kept, 'connect');
  kept.write('GET /hello HTTP/1.1\r\nhost: x\r\n\r\n');
  await once(kept, 'data');
  const late = connect(address.port, address.host);
  await once(late, 'connect');
  // It has been accepted when a later one has been answered.
  await (await fetch(url('/hello'))).text();
  const left = server.leave();
  await once(kept, 'close');
  await t.rejects(fetch(url('/hello')), 'nobody new');
  let answer = '';
  late.setEncoding('latin1').on('data', (text: string) => (answer += text));
  late.write('GET /hello HTTP/1.1\r\nhost: x\r\n\r\n');
  await once(late, 'close');
  t.match(answer, /^HTTP\/1.1 200 OK\r\n[^]*connection: close\r\n[^]*hello\n$/i);
  await left;
  t.same(server.ports, []);
});

t.test('whoever connects and asks nothing keeps nobody waiting when it leaves', async (t) => {
  const clock = new FakeClock();
  const { server, address, url } = await serve(t, { '/hello': HELLO }, { clock });
  const silent = connect(address.port, address.host);
  await once(silent, 'connect');
  await (await fetch(url('/hello'))).text();
  const left = server.leave();
  clock.advance(5000);
  await Promise.all([left, once(silent, 'close')]);
  await server.close();
});

t.test('more clients than the limit do not get in while all are being answered', async (t) => {
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  let begun = 0;
  const slow: Page = {
    summary: 'takes its time',
    answer: async () => {
      begun += 1;
      await released;
      return plain(200, 'slow\n');
    },
  };
  const { address, url } = await serve(t, { '/hello': HELLO, '/slow': slow });
  const clients = await Promise.all(
    Array.from({ length: MAX_HTTP_CONNECTIONS }, async () => {
      const client = connect(address.port, '127.0.0.1');
      t.teardown(() => client.destroy());
      client.write('GET /hello HTTP/1.1\r\nHost: x\r\n\r\n');
      await once(client, 'data');
      client.write('GET /slow HTTP/1.1\r\nHost: x\r\n\r\n');
      return client;
    }),
  );
  await until(() => begun === MAX_HTTP_CONNECTIONS);
  await t.rejects(fetch(url('/hello')));
  release();
  for (const client of clients) t.match(String((await once(client, 'data'))[0]), /slow/);
});

t.test('clients that say nothing keep nobody out: the one idle for longest goes', async (t) => {
  const { address, url } = await serve(t, { '/hello': HELLO });
  const ended: number[] = [];
  const open = async (index: number): Promise<void> => {
    const client = connect(address.port, '127.0.0.1');
    t.teardown(() => client.destroy());
    client.on('error', () => undefined).once('close', () => ended.push(index));
    await once(client, 'connect');
    // Accepted in this order: the next one comes after an answer.
    if (index < 2) {
      client.write('GET /hello HTTP/1.1\r\nHost: x\r\n\r\n');
      await once(client, 'data');
    }
  };
  for (let index = 0; index < MAX_HTTP_CONNECTIONS; index += 1) await open(index);
  const headers = { connection: 'close' };
  t.equal((await fetch(url('/hello'), { headers })).status, 200);
  await until(() => ended.length === 1);
  t.same(ended, [0]);
  for (let index = 0; index < 2 * MAX_HTTP_CONNECTIONS; index += 1) await open(1000 + index);
  t.equal((await fetch(url('/hello'), { headers })).status, 200);
});

t.test('nonsense on the line is answered, not fatal', async (t) => {
  const { address, url } = await serve(t, { '/hello': HELLO });
  const client = connect(address.port, '127.0.0.1');
  client.on('error', () => {});
  client.write('\u0000\u0001 nonsense\r\n\r\n');
  const [answer] = (await once(client, 'data')) as [Buffer];
  t.match(answer.toString(), /^HTTP\/1\.1 400/);
  const odd = request(url('/hello'), { path: '//:::%%%' });
  odd.end();
  const [response] = (await once(odd, 'response')) as [{ statusCode: number; resume(): void }];
  response.resume();
  t.equal(response.statusCode, 404);
});
