/** Proxies, paths and certificates between us and the server. */
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import t, { type Test } from 'tap';
import { kubeStarted } from '../../src/kube/events.ts';
import { makeAuthority } from '../support/certs.ts';
import {
  certifiedUser,
  cutAndWatch,
  place,
  secureRig,
  users,
  startKubeRig,
} from '../support/kube-rig.ts';
import { collect, freePort } from '../support/sockets.ts';
import { until } from '../support/until.ts';

/** An HTTP proxy, and the targets it was asked for. */
async function startProxy(t: Test): Promise<{ url: string; through: string[] }> {
  const through: string[] = [];
  const proxy = createServer().on('connect', (request, client, head) => {
    through.push(request.url ?? '');
    const [host = '', to] = (request.url ?? '').split(':');
    const server = connect(Number(to), host, () => {
      client.write('HTTP/1.1 200 Connection established\r\n\r\n');
      server.write(head);
      server.pipe(client).pipe(server);
    });
    for (const socket of [client, server]) socket.on('error', () => socket.destroy());
  });
  proxy.listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  t.teardown(() => proxy.close());
  return { url: `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`, through };
}

t.test('through a proxy of the kubeconfig, also with a certificate that is replaced', async (t) => {
  const here = await place(t);
  const { url, through } = await startProxy(t);
  const started = collect(t, kubeStarted);
  const { user, replace } = await certifiedUser(here);
  const given = { cluster: { 'proxy-url': url }, user };
  const rig = await secureRig(t, here, given, { api: { auth: {} } });
  const { api, watching } = rig;
  await watching();
  t.ok(through.length >= 3);
  t.strictSame(new Set(through), new Set([api.url.replace('https://', '')]));
  t.match(started, [{ proxy: url.replace('http://', ''), user: 'first' }]);
  await replace();
  await cutAndWatch(rig);
  t.strictSame(users(api), ['first', 'second']);
});

t.test('a server below a path', async (t) => {
  const at = await freePort();
  const behind = createServer().on('request', (request, response) => {
    response.writeHead(404).end(request.url);
    paths.push(request.url ?? '');
  });
  const paths: string[] = [];
  behind.listen(at, '127.0.0.1');
  await once(behind, 'listening');
  t.teardown(() => behind.close());
  const { failures } = await startKubeRig(t, {
    source: { config: { kubeconfig: '', server: `http://127.0.0.1:${at}/k8s/c1/`, env: {} } },
  });
  await until(() => failures.length === 3);
  t.ok(paths.some((path) => path.startsWith('/k8s/c1/api/v1/services?')));
  t.match(failures[0], { kind: 'server', error: { message: /404 Not Found/ } });
});

t.test('a certificate that is not trusted, or has expired, is refused', async (t) => {
  const here = await place(t);
  const other = await makeAuthority(t, 'other');
  for (const [pair, problem] of [
    [await other.issue('server'), /not signed by a trusted CA/],
    [await here.certs.issueExpired('old'), /: API server certificate has expired; renew it$/],
  ] as const) {
    const [key, cert] = [await readFile(pair.key, 'utf8'), await readFile(pair.crt, 'utf8')];
    const tls = { ...here.tls, key, cert };
    const rig = await secureRig(t, here, {}, { api: { tls } });
    const { api, failures, store, watching, advanceUntil } = rig;
    await until(() => failures.length === 3);
    t.match(failures[0], { kind: 'tls', error: { code: 'KPNG_SOURCE_LOST', message: problem } });
    t.notOk(store.synced);
    api.setTls({ key: here.tls.key, cert: here.tls.cert });
    await advanceUntil(() => api.watches().length === 3);
    await watching();
  }
});

t.test('a certificate with a name instead of the address', async (t) => {
  const here = await place(t);
  const { key, crt } = await here.certs.issue('named', 'DNS:kubernetes.default');
  const tls = { ...here.tls, key: await readFile(key, 'utf8'), cert: await readFile(crt, 'utf8') };
  const refused = await secureRig(t, here, {}, { api: { tls } });
  await until(() => refused.failures.length === 3);
  t.match(refused.failures[0], { kind: 'tls', error: { message: /altnames/ } });
  const cluster = { 'tls-server-name': 'kubernetes.default' };
  const { watching } = await secureRig(t, here, { cluster }, { api: { tls } });
  await watching();
  t.pass('with tls-server-name');
});
