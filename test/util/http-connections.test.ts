/** Clients of an HTTP server, well-behaved and hostile, and what they are answered. */
import { once } from 'node:events';
import { get, request } from 'node:http';
import { connect, type Socket } from 'node:net';
import t from 'tap';
import {
  RESPONSE_TIMEOUT_MS,
  MAX_HTTP_CONNECTIONS,
  MAX_RESPONSE_BYTES,
  MAX_WAITING_REQUESTS,
  plain,
  type HttpResponse,
} from '../../src/util/http-connections.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { HELLO, serve, type TestPages } from '../support/http-server.ts';
import { until } from '../support/until.ts';

/** More than the kernel buffers of a connection take. */
const LARGE = 'x'.repeat(32 * 1024 * 1024);

function streamed(body: () => AsyncIterable<string>): HttpResponse {
  return { status: 200, type: 'text/plain', body: body() };
}

t.test('GET and HEAD are answered, whatever the query', async (t) => {
  const { url } = await serve(t, HELLO);
  const response = await fetch(url('/hello?x=1'));
  t.equal(response.status, 200);
  t.equal(await response.text(), 'hello\n');
  t.equal(response.headers.get('content-type'), 'text/plain; charset=utf-8');
  t.equal(response.headers.get('x-content-type-options'), 'nosniff');
  const head = await fetch(url('/hello'), { method: 'HEAD' });
  t.equal(head.headers.get('content-length'), '6');
  t.equal(await head.text(), '');
  const post = await fetch(url('/hello'), { method: 'POST', body: 'x' });
  t.equal(post.status, 405);
  t.equal(post.headers.get('allow'), 'GET, HEAD');
  t.match(await post.text(), /POST is not supported/);
});

t.test('a page in pieces, and a whole page made on demand', async (t) => {
  let made = 0;
  const pages: TestPages = {
    '/pieces': () =>
      streamed(async function* () {
        for (let n = 0; n < 1000; n += 1) yield `${n}\n`;
      }),
    '/whole': () => ({
      status: 200,
      type: 'text/plain',
      body: async () => {
        made += 1;
        return [Buffer.from('one '), Buffer.from('two')];
      },
    }),
  };
  const { url, failures } = await serve(t, pages);
  t.equal((await (await fetch(url('/pieces'))).text()).split('\n').length, 1001);
  for (const path of ['/pieces', '/whole'])
    t.equal((await fetch(url(path), { method: 'HEAD' })).status, 200);
  t.equal(made, 0, 'not for HEAD');
  const whole = await fetch(url('/whole'));
  t.equal(whole.headers.get('content-length'), '7');
  t.equal(await whole.text(), 'one two');
  t.same(failures, []);
});

t.test('a page that cannot be made is a 500 and is reported', async (t) => {
  const error = new Error('no');
  const fail = (): never => {
    throw error;
  };
  const pages: TestPages = {
    ...HELLO,
    '/bad': fail,
    '/late': () => ({ status: 200, type: 'a/b', body: async () => fail() }),
    '/half': () =>
      streamed(async function* () {
        yield 'first half\n';
        fail();
      }),
  };
  const { url, failures } = await serve(t, pages);
  t.equal((await fetch(url('/bad'))).status, 500);
  t.equal((await fetch(url('/late'))).status, 500);
  await t.rejects(async () => (await fetch(url('/half'))).text(), 'half a page is no page');
  t.equal(await (await fetch(url('/hello'))).text(), 'hello\n');
  const failed = (path: string) => [path, error];
  t.same(failures, ['/bad', '/late', '/half'].map(failed));
});

t.test('a client that disconnects stops the rendering of its page', async (t) => {
  const ended = Promise.withResolvers<void>();
  const aborted = Promise.withResolvers<void>();
  const pages: TestPages = {
    '/endless': () =>
      streamed(async function* () {
        try {
          for (;;) yield 'x'.repeat(65_536);
        } finally {
          ended.resolve();
        }
      }),
    '/slow': ({ signal }) => {
      signal.addEventListener('abort', () => aborted.resolve());
      return new Promise<never>(() => undefined);
    },
  };
  const { url, failures, ask } = await serve(t, pages);
  const client = get(url('/endless'));
  const [response] = (await once(client, 'response')) as [{ destroy(): void }];
  response.destroy();
  await ended.promise;
  (await ask('/slow')).destroy();
  await aborted.promise;
  t.same(failures, [], 'that is no failure of the page');
});

t.test('pipelined requests are answered one at a time, in their order', async (t) => {
  let making = 0;
  let most = 0;
  const pages: TestPages = {
    '/': async ({ query }) => {
      making += 1;
      most = Math.max(most, making);
      await new Promise(setImmediate);
      making -= 1;
      return plain(200, `<${query}>`);
    },
  };
  const { ask } = await serve(t, pages);
  const client = await ask('/?0');
  for (let n = 1; n <= MAX_WAITING_REQUESTS; n += 1)
    client.write(`GET /?${n} HTTP/1.1\r\nhost: x\r\n\r\n`);
  let text = '';
  client.setEncoding('latin1').on('data', (part: string) => (text += part));
  await until(() => text.includes(`<${MAX_WAITING_REQUESTS}>`));
  t.strictSame(
    [...text.matchAll(/<(\d+)>/g)].map(([, n]) => Number(n)),
    Array.from({ length: MAX_WAITING_REQUESTS + 1 }, (_, n) => n),
  );
  t.equal(most, 1);
});

t.test('a client that pipelines too many requests is closed unanswered', async (t) => {
  const slow = async () => {
    await new Promise(setImmediate);
    return plain(200, LARGE);
  };
  const { ask, url, asked, reached } = await serve(t, { ...HELLO, '/slow': slow });
  const client = await ask('/slow', MAX_WAITING_REQUESTS + 2);
  client.resume();
  await once(client, 'close');
  t.strictSame(reached, ['waiting-requests']);
  t.ok(asked.length <= 1, `${asked.length} answers were begun`);
  t.equal((await fetch(url('/hello'))).status, 200);
});

t.test('a client that does not read its answer in time is closed', async (t) => {
  const clock = new FakeClock();
  const pages = { '/large': () => plain(200, LARGE) };
  const { ask, asked, reached } = await serve(t, pages, { clock });
  const client = await ask('/large', 5);
  client.pause();
  await until(() => asked.length === 1);
  clock.advance(RESPONSE_TIMEOUT_MS);
  t.strictSame(reached, ['answer-time']);
  client.resume();
  await once(client, 'close');
  t.equal(asked.length, 1, 'the others were not begun');
  t.equal(clock.pending, 0);
});

t.test('unread answers take no more memory than their common limit', async (t) => {
  const shared = [Buffer.from(LARGE)];
  const pages: TestPages = {
    '/own': () => plain(200, LARGE),
    '/shared': () => ({ status: 200, type: 'a/b', body: async () => shared }),
  };
  const servers = [await serve(t, pages), await serve(t, pages)] as const;
  const [{ reached }] = servers;
  const hoard = async (path: string, from = 0): Promise<Socket> => {
    const { ask, asked } = servers[from % 2 === 0 ? 0 : 1];
    const before = asked.length;
    const client = (await ask(path)).pause();
    await until(() => asked.length > before);
    return client;
  };
  await (await fetch(servers[0].url('/own'))).text();
  const first = await hoard('/own');
  for (let n = 0; n < 6; n += 1) await hoard('/shared', n);
  for (let n = 2; n < MAX_RESPONSE_BYTES / LARGE.length; n += 1) await hoard('/own', n);
  const other = await fetch(servers[1].url('/shared'));
  t.strictSame(reached, [], 'a page that several clients get counts once, on all servers');
  await hoard('/own');
  await until(() => reached.length > 0);
  t.strictSame(reached, ['answer-bytes']);
  await once(first.resume(), 'close');
  t.equal((await other.text()).length, LARGE.length, 'only the oldest is dropped');
});

t.test('clients that do not read do not lock out others', async (t) => {
  const pieces = [Buffer.from(LARGE)];
  const large = () => ({ status: 200, type: 'a/b', body: async () => pieces });
  const { ask, url, asked, reached } = await serve(t, { ...HELLO, '/large': large });
  for (let n = 0; n < MAX_HTTP_CONNECTIONS; n += 1) (await ask('/large')).pause();
  await until(() => asked.length === MAX_HTTP_CONNECTIONS);
  t.equal((await fetch(url('/hello'))).status, 200);
  t.strictSame(reached, ['connections']);
});

t.test('a new client is closed while all others wait for their answers', async (t) => {
  const { promise: slow, resolve: release } = Promise.withResolvers<HttpResponse>();
  const { ask, url, asked, reached } = await serve(t, { ...HELLO, '/slow': () => slow });
  const clients = [];
  for (let n = 0; n < MAX_HTTP_CONNECTIONS; n += 1) clients.push(await ask('/slow'));
  await until(() => asked.length === MAX_HTTP_CONNECTIONS);
  await t.rejects(fetch(url('/hello')));
  t.strictSame(reached, ['connections']);
  const answers = clients.map((client) => once(client, 'data'));
  release(plain(200, 'slow\n'));
  for (const answer of answers) t.match(String((await answer)[0]), /slow/);
});

t.test('silent clients do not lock out others: the longest idle one is closed', async (t) => {
  const { address, ask, url } = await serve(t, HELLO);
  const ended: number[] = [];
  const open = async (index: number): Promise<void> => {
    const client = connect(address.port, '127.0.0.1');
    t.teardown(() => client.destroy());
    client.on('error', () => undefined).once('close', () => ended.push(index));
    await once(client, 'connect');
  };
  // Accepted in this order: the next one comes after an answer.
  const answered = await ask('/hello');
  answered.once('close', () => ended.push(0));
  await once(answered, 'data');
  for (let index = 1; index < MAX_HTTP_CONNECTIONS; index += 1) await open(index);
  const headers = { connection: 'close' };
  t.equal((await fetch(url('/hello'), { headers })).status, 200);
  await until(() => ended.length === 1);
  t.same(ended, [0]);
  for (let index = 0; index < 2 * MAX_HTTP_CONNECTIONS; index += 1) await open(1000 + index);
  t.equal((await fetch(url('/hello'), { headers })).status, 200);
});

t.test('nonsense, huge headers and headers that never end', async (t) => {
  const { address, url, ask } = await serve(t, HELLO);
  const answerTo = async (text: string): Promise<string> => {
    const client = connect(address.port, '127.0.0.1');
    t.teardown(() => client.destroy());
    client.on('error', () => undefined);
    client.write(text);
    const [answer] = (await once(client, 'data')) as [Buffer];
    return answer.toString();
  };
  // It takes as long as the time limit of headers.
  const slow = answerTo('GET /hello HTTP/1.1\r\nhost:');
  const silent = once(connect(address.port, '127.0.0.1').resume(), 'close');
  t.match(await answerTo('\u0000\u0001 nonsense\r\n\r\n'), /^HTTP\/1\.1 400/);
  t.match(await answerTo(`GET / HTTP/1.1\r\nx: ${'x'.repeat(100_000)}`), /^HTTP\/1\.1 431/);
  const odd = request(url('/hello'), { path: '//:::%%%' });
  odd.end();
  const [response] = (await once(odd, 'response')) as [{ statusCode: number; resume(): void }];
  response.resume();
  t.equal(response.statusCode, 404);
  (await ask('/hello', 3)).resetAndDestroy();
  t.match(await slow, /^HTTP\/1\.1 408/);
  await silent;
  t.equal((await fetch(url('/hello'))).status, 200);
});
