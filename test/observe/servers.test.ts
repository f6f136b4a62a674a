import { once } from 'node:events';
import { copyFileSync } from 'node:fs';
import { createServer as createHttpServer, type Server } from 'node:http';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import t, { type Test } from 'tap';
import { Health } from '../../src/observe/health.ts';
import { createMetrics } from '../../src/observe/metrics.ts';
import { startLoggedServer, startServers, type ServersOptions } from '../../src/observe/servers.ts';
import { createHttps, guardPages } from '../../src/observe/access.ts';
import type { HostPort } from '../../src/util/host-port.ts';
import { plain } from '../../src/util/http-connections.ts';
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
    return Promise.all(servers.map((each) => each.close()));
  });
  await until(() => lines().length > 0);
  const ask = (path: string): Promise<Response> => fetch(`${String(lines()[0]?.['url'])}${path}`);
  return { health, metrics, lines, ask };
}

t.test('the health server has no metrics, which count its answers', async (t) => {
  const { health, metrics, ask } = await start(t, { healthAddress: LOOPBACK });
  const status = async (path: string) => (await ask(path)).status;
  const probes = ['/healthz', '/livez', '/readyz', '/metrics'];
  t.same(await Promise.all(probes.map(status)), [503, 200, 503, 404]);
  health.synced();
  t.same(await Promise.all(probes.map(status)), [200, 200, 200, 404]);
  t.equal((await ask('/healthz')).headers.get('content-type'), 'application/json');
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

t.test('new connections use files that have changed and are valid', async (t) => {
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
  const create = await createHttps({ name: 'it', files, flags, clock, log });
  const { address } = await serve(t, { '/': () => plain(200, '') }, { clock, create });
  const { port } = address;
  /** The name in the certificate of a server that answers. */
  const who = async (): Promise<string> => {
    const socket = connectTls({ host: '127.0.0.1', port, rejectUnauthorized: false });
    t.teardown(() => socket.destroy());
    socket.on('error', () => {}).write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
    t.match(String((await once(socket, 'data'))[0]), /^HTTP\/1\.1 200 /);
    return String(socket.getPeerCertificate().subject.CN);
  };
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
  t.match(lines(), [
    { level: 'warn', msg: /^TLS files not usable/, server: 'it', err: /does not belong/ },
    { level: 'info', msg: /^TLS files changed/, server: 'it' },
  ]);
  t.equal(lines().length, 2);
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
