import { once } from 'node:events';
import { copyFileSync } from 'node:fs';
import { createServer as createHttpServer, type Server } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import t, { type Test } from 'tap';
import { Health } from '../../src/observe/health.ts';
import { createMetrics } from '../../src/observe/metrics.ts';
import { startLoggedServer, startServers, type ServersOptions } from '../../src/observe/servers.ts';
import { sharedPage } from '../../src/observe/pages.ts';
import { guardPages, tlsServers } from '../../src/observe/access.ts';
import type { HostPort } from '../../src/util/host-port.ts';
import { MAX_HTTP_CONNECTIONS, plain } from '../../src/util/http-server.ts';
import { TLS_POLL_MS } from '../../src/util/tls-files.ts';
import { captureLog } from '../support/captured-log.ts';
import { makeAuthority } from '../support/certs.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { serve } from '../support/http-server.ts';
import { scrapePage } from '../support/metrics-page.ts';
import { shortDir } from '../support/short-dir.ts';
import { freePort } from '../support/sockets.ts';
import { until } from '../support/until.ts';

const LOOPBACK: HostPort = { host: '127.0.0.1', port: 0 };

type Addresses = Partial<Pick<ServersOptions, 'metricsAddress' | 'healthAddress'>>;

async function start(t: Test, addresses: Addresses) {
  const { log, lines } = await captureLog();
  const health = new Health();
  const metrics = createMetrics({ version: '0' });
  const none = { metricsAddress: undefined, healthAddress: undefined };
  const clock = new FakeClock();
  const servers = startServers({ ...none, ...addresses, health, metrics, log, clock });
  t.teardown(() => {
    metrics.close();
    return servers.close();
  });
  await until(() => lines().length > 0);
  const ask = (path: string): Promise<Response> => fetch(`${String(lines()[0]?.['url'])}${path}`);
  return { health, metrics, lines, ask };
}

t.test('health answers report the truth, from the start', async (t) => {
  const { health, metrics, ask } = await start(t, { healthAddress: LOOPBACK });
  const status = async (path: string) => (await ask(path)).status;
  t.same(await Promise.all(['/healthz', '/livez', '/readyz'].map(status)), [503, 200, 503]);
  health.synced();
  t.same(await Promise.all(['/healthz', '/livez', '/readyz'].map(status)), [200, 200, 200]);
  const response = await ask('/healthz');
  t.equal(response.headers.get('content-type'), 'application/json');
  t.match(await response.json(), { nodeEligible: true, lastUpdated: String, currentTime: String });
  t.equal(await status('/metrics'), 404, 'metrics are not for everybody');
  const page = await scrapePage(metrics);
  t.equal(page.value('kubeproxy_proxy_healthz_total', { code: '503' }), 1);
  t.equal(page.value('kubeproxy_proxy_livez_total', { code: '200' }), 2);
});

t.test('one address for both is one server with everything', async (t) => {
  const address = { host: '127.0.0.1', port: await freePort() };
  const { lines, ask } = await start(t, { metricsAddress: address, healthAddress: address });
  for (const path of ['/metrics', '/livez', '/proxyMode', '/']) {
    t.equal((await ask(path)).status, 200, path);
  }
  t.equal(lines().length, 1);
});

t.test('an address that stays taken is reported once, and again when another has it', async (t) => {
  const { log, lines } = await captureLog();
  const clock = new FakeClock();
  const holders = ['one', 'one', 'one', 'another', 'another', 'a third'];
  const create = (): Server => {
    const server = createHttpServer();
    server.listen = () => {
      const cause = Object.assign(new Error(`taken by ${holders.shift()}`), { code: 'EADDRINUSE' });
      setImmediate(() => server.emit('error', cause));
      return server;
    };
    return server;
  };
  const server = startLoggedServer({
    what: 'a page',
    address: { host: '127.0.0.1', port: 1 },
    answer: () => plain(200, ''),
    log,
    clock,
    create,
  });
  t.teardown(() => server.close());
  while (holders.length > 0) {
    await until(() => clock.pending === 1);
    clock.advance(30_000);
  }
  await until(() => clock.pending === 1);
  t.equal(lines().length, 3);
  const first = { level: 'warn', msg: 'Serving a page failed; retrying', address: '127.0.0.1:1' };
  t.match(lines(), [
    { ...first, err: 'cannot listen on 127.0.0.1:1: taken by one', retryInMs: 1000 },
    { code: 'KPNG_LISTEN_ADDRESS_IN_USE', err: /another/, retryInMs: 8000 },
    { err: /a third/ },
  ]);
});

/** A page that is made step by step, and says which one it is. */
function sharedSetup() {
  const steps: (() => void)[] = [];
  const seen = { begun: 0, ended: 0 };
  const page = sharedPage(async function* () {
    const number = (seen.begun += 1);
    try {
      yield `page ${number}`;
      await new Promise<void>((resolve) => steps.push(resolve));
      yield ' all of it';
    } finally {
      seen.ended += 1;
    }
  });
  const get = async (signal = new AbortController().signal): Promise<string> =>
    Buffer.concat(await page(signal)).toString();
  const step = async (): Promise<void> => {
    while (steps.length === 0) await new Promise(setImmediate);
    steps.shift()?.();
  };
  return { get, step, seen };
}

t.test('one page at a time; concurrent clients share the next one', async (t) => {
  const { get, step, seen } = sharedSetup();
  const first = [get(), get()];
  await new Promise(setImmediate);
  const second = [get(), get(), get()];
  await new Promise(setImmediate);
  t.equal(seen.begun, 1);
  await step();
  t.strictSame(await Promise.all(first), ['page 1 all of it', 'page 1 all of it']);
  await step();
  t.equal(new Set(await Promise.all(second)).size, 1);
  t.strictSame(seen, { begun: 2, ended: 2 });
});

t.test('a page that no client waits for is not rendered', async (t) => {
  const { get, step, seen } = sharedSetup();
  const clients = [new AbortController(), new AbortController(), new AbortController()];
  const [a, b, c] = clients.map(({ signal }) => get(signal));
  await new Promise(setImmediate);
  const later = new AbortController();
  const never = get(later.signal);
  later.abort();
  clients[0]?.abort();
  await step();
  t.equal(await b, 'page 1 all of it', 'another client waits for it');
  await Promise.all([a, c, never]);
  t.strictSame(seen, { begun: 1, ended: 1 });
  const left = new AbortController();
  const unfinished = get(left.signal);
  await new Promise(setImmediate);
  left.abort();
  await step();
  t.equal(await unfinished, '');
  t.strictSame(seen, { begun: 2, ended: 2 });
});

t.test('a page that fails does not stop the next one', async (t) => {
  let fails = true;
  const page = sharedPage(async function* () {
    if (fails) throw new Error('no');
    yield 'well';
  });
  const { signal } = new AbortController();
  await t.rejects(page(signal), { message: 'no' });
  fails = false;
  t.equal(String((await page(signal))[0]), 'well');
});

async function tlsSetup(t: Test) {
  const authority = await makeAuthority(t);
  const names = { first: await authority.issue('first'), second: await authority.issue('second') };
  const dir = shortDir(t);
  const files = { crt: join(dir, 'tls.crt'), key: join(dir, 'tls.key') };
  const put = (name: keyof typeof names, ...which: ('crt' | 'key')[]): void => {
    for (const each of which) copyFileSync(names[name][each], files[each]);
  };
  put('first', 'crt', 'key');
  const clock = new FakeClock();
  const { log, lines } = await captureLog();
  const flags = { crt: '--crt', key: '--key', ca: '' };
  const tls = await tlsServers({ name: 'it', files, flags, clock, log });
  if (tls === undefined) throw new Error('there are files');
  t.teardown(() => tls.close());
  const { address } = await serve(t, { '/': () => plain(200, '') }, { clock, create: tls.create });
  const { port } = address;
  const client = async (): Promise<TLSSocket> => {
    const socket = connectTls({ host: '127.0.0.1', port, rejectUnauthorized: false });
    t.teardown(() => socket.destroy());
    socket.on('error', () => {});
    await once(socket, 'secureConnect');
    return socket;
  };
  const who = async (): Promise<string> => {
    const { subject } = (await client()).getPeerCertificate();
    return String(subject.CN);
  };
  return { put, clock, lines, client, who, port };
}

t.test('new connections use files that have changed and are valid', async (t) => {
  const { put, clock, lines, who, port } = await tlsSetup(t);
  t.equal(await who(), 'first');
  put('second', 'crt');
  clock.advance(TLS_POLL_MS);
  await until(() => lines().length === 1);
  t.equal(await who(), 'first');
  put('second', 'key');
  await until(() => {
    clock.advance(TLS_POLL_MS);
    return lines().length === 2;
  });
  t.equal(await who(), 'second');
  for (let n = 0; n < 2; n += 1) await t.rejects(fetch(`http://127.0.0.1:${port}/`));
  t.match(lines(), [
    { level: 'warn', msg: /^TLS files not usable/, server: 'it', err: /does not belong/ },
    { level: 'info', msg: /^TLS files changed/, server: 'it' },
    { level: 'warn', msg: /^Client used http/, client: /^127\.0\.0\.1:/ },
  ]);
  t.equal(lines().length, 3);
});

t.test('failed reviews of tokens are logged now and then', async (t) => {
  const { log, lines } = await captureLog();
  const clock = new FakeClock();
  const review = () => Promise.reject(new Error('no answer'));
  const guard = guardPages({ review, metrics: undefined, log, clock });
  for (const waited of [9_999, 1, 0]) {
    t.match(await guard('/metrics', 'Bearer x'), { status: 503 });
    clock.advance(waited);
  }
  t.match(lines(), [{ level: 'warn', err: 'no answer' }, { level: 'warn' }]);
  t.equal(lines().length, 2);
});

t.test('silent clients do not lock out others, with TLS or without', async (t) => {
  const { client, port } = await tlsSetup(t);
  const working = await client();
  const request = async (socket: TLSSocket): Promise<void> => {
    socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
    t.match(String((await once(socket, 'data'))[0]), /^HTTP\/1\.1 200 /);
  };
  await request(working);
  for (let n = 0; n < MAX_HTTP_CONNECTIONS + 5; n += 1) {
    const silent = connect(port, '127.0.0.1');
    t.teardown(() => silent.destroy());
    silent.on('error', () => {});
    await once(silent, 'connect');
  }
  await request(await client());
});
