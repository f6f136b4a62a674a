/** As whom the server is asked, and on which way: tokens, certificates, programs, proxies, paths. */
import { once } from 'node:events';
import { chmod, readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { kubeStarted } from '../../src/kube/events.ts';
import { makeAuthority } from '../support/certs.ts';
import {
  type Config,
  cutAndWatch,
  type Place,
  place,
  secureRig,
  startKubeRig,
  tokenOf,
  users,
} from '../support/kube-rig.ts';
import { collect } from '../support/sockets.ts';
import { until } from '../support/until.ts';

const EXEC = 'client.authentication.k8s.io/v1';

/** A program that fetches the token `$token`, and how often it was run. */
async function program(here: Place, ...steps: string[]) {
  const answer = `'{"apiVersion":"${EXEC}","kind":"ExecCredential","status":{"token":"%s"}}'`;
  const text = ['#!/bin/sh', 'cd "$(dirname "$0")"', 'echo run >> runs', ...steps, ''].join('\n');
  const path = await here.write('login.sh', `${text}printf ${answer} "$token"\n`);
  await chmod(path, 0o755);
  const read = (name: string): Promise<string> => readFile(join(path, '..', name), 'utf8');
  return {
    user: { exec: { apiVersion: EXEC, command: './login.sh' } },
    read,
    runs: async () => (await read('runs')).trim().split('\n').length,
  };
}

/** An HTTP server that ends with the test; returns its URL. */
async function listening(t: Test, server: ReturnType<typeof createServer>): Promise<string> {
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.teardown(() => server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

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
  return { url: await listening(t, proxy), through };
}

/** Credentials of the user `first`, which `replace` makes those of `second`. `check`: once they are in use. */
interface Replaceable extends Config {
  readonly replace: () => Promise<unknown>;
  readonly check?: () => Promise<void>;
}

async function certified(_t: Test, here: Place): Promise<Replaceable> {
  const put = async (name: string) => {
    const { key, crt } = await here.certs.issue(name);
    return {
      'client-certificate': await here.write('user.crt', await readFile(crt, 'utf8')),
      'client-key': await here.write('user.key', await readFile(key, 'utf8')),
    };
  };
  return { user: await put('first'), replace: () => put('second') };
}

const REPLACEABLE = {
  certificate: certified,
  async token(_t: Test, here: Place) {
    await here.write('token', 'one\n');
    const user = { tokenFile: 'token', token: 'not this one' };
    return { user, replace: () => here.write('token', 'two\n') };
  },
  async program(t: Test, here: Place) {
    const steps = ['token=$(cat current)', 'echo "$KUBERNETES_EXEC_INFO" > info'];
    const { user, read, runs } = await program(here, ...steps);
    await here.write('current', 'one');
    const check = async (): Promise<void> => {
      t.equal(await runs(), 1, 'once for all three');
      t.match(JSON.parse(await read('info')), { kind: 'ExecCredential', apiVersion: EXEC });
    };
    return { user, replace: () => here.write('current', 'two'), check };
  },
};

for (const [by, prepare] of Object.entries(REPLACEABLE)) {
  t.test(`a ${by} that is replaced counts once the previous one is refused`, async (t) => {
    const here = await place(t);
    const started = collect(t, kubeStarted);
    const { replace, check, ...given }: Replaceable = await prepare(t, here);
    const tokens = new Map([['one', 'first']]);
    const rig = await secureRig(t, here, given, { auth: { tokens } });
    await rig.watching();
    await check?.();
    await replace();
    tokens.clear();
    tokens.set('two', 'second');
    await cutAndWatch(rig);
    t.strictSame(users(rig.api), ['first', 'second']);
    const [kind, user] = by === 'certificate' ? [by, 'first'] : ['token', 'u'];
    t.match(started[0], { context: 'test', user, by: kind, proxy: undefined });
    const isTried = rig.failures.some((failure) => failure.kind === 'unauthorized');
    t.equal(isTried, by !== 'certificate', 'a token is tried once more');
  });
}

t.test('through a proxy of the kubeconfig, also with a certificate that is replaced', async (t) => {
  const here = await place(t);
  const { url, through } = await startProxy(t);
  const started = collect(t, kubeStarted);
  const { user, replace } = await certified(t, here);
  const rig = await secureRig(t, here, { cluster: { 'proxy-url': url }, user }, { auth: {} });
  await rig.watching();
  t.ok(through.length >= 3);
  t.strictSame(new Set(through), new Set([rig.api.url.replace('https://', '')]));
  t.match(started, [{ proxy: url.replace('http://', ''), user: 'first' }]);
  await replace();
  await cutAndWatch(rig);
  t.strictSame(users(rig.api), ['first', 'second']);
});

t.test('rejected credentials: the message names the user, or says they have expired', async (t) => {
  const here = await place(t);
  const exp = Date.parse('2026-01-02T03:04:05Z') / 1000;
  for (const [claims, reason] of [
    [{ sub: 'kpng', exp }, 'the token expired at 2026-01-02T03:04:05.000Z'],
    [{ sub: 'kpng' }, 'the server does not accept the token of "kpng"'],
  ] as const) {
    const user = { token: tokenOf(claims) };
    const { failures } = await secureRig(t, here, { user }, { auth: {} });
    await until(() => failures.length >= 3);
    t.match(failures[0], { kind: 'unauthorized', error: { code: 'KPNG_KUBE_UNAUTHORIZED' } });
    t.ok(failures[0]?.error.message.endsWith(`: 401 Unauthorized; ${reason}`));
  }
});

t.test('impersonated users; over plain HTTP no credentials are sent', async (t) => {
  const here = await place(t);
  const tokens = new Map([['secret', 'admin']]);
  const user = { token: 'secret', as: 'kpng', 'as-groups': ['system:nodes', 'ops'] };
  const { api, watching } = await secureRig(t, here, { user }, { auth: { tokens } });
  await watching();
  t.match(api.requests[0]?.headers, {
    'impersonate-user': 'kpng',
    'impersonate-group': 'system:nodes, ops',
    'user-agent': 'test',
  });
  const cluster = { 'certificate-authority': undefined };
  const plain = await secureRig(t, here, { cluster, user }, { tls: undefined });
  await plain.watching();
  t.ok(plain.api.requests.length > 0);
  t.ok(plain.api.requests.every(({ headers }) => headers.authorization === undefined));
});

t.test('a program that fails is reported with what it said, and retried', async (t) => {
  const here = await place(t);
  const exec = { apiVersion: EXEC, command: 'sh', args: ['-c', 'echo no ticket >&2; exit 1'] };
  const { failures, store, clock, advanceUntil } = await secureRig(t, here, { user: { exec } });
  await until(() => failures.length === 3);
  t.match(failures[0], {
    kind: 'credentials',
    error: { code: 'KPNG_KUBE_UNAUTHORIZED', message: /^no credentials for https:.*: no ticket/s },
  });
  const end = clock.now() + 30_000;
  await advanceUntil(() => clock.now() > end && failures.length > 5, 1000);
  t.notOk(store.synced);
  const silent = { ...exec, args: ['-c', 'exit 1'] };
  const other = await secureRig(t, here, { user: { exec: silent } });
  // The source from before may report failures, too.
  const silently = /: the program that fetches them failed without/;
  await until(() => other.failures.some(({ error }) => silently.test(error.message)));
});

t.test('a program that hangs is not started a second time', async (t) => {
  const here = await place(t);
  const { user, runs } = await program(here, 'while [ ! -e go ]; do sleep 0.05; done', 'token=one');
  const auth = { tokens: new Map([['one', 'one']]) };
  const { api, failures, advanceUntil } = await secureRig(t, here, { user }, { auth });
  t.teardown(() => here.write('go', ''));
  await advanceUntil(() => failures.length >= 6, 5000);
  t.match(failures[0], { kind: 'credentials', error: { message: /: timed out after 60 s$/ } });
  await here.write('go', '');
  await advanceUntil(() => api.watches().length === 3);
  t.equal(await runs(), 1);
});

t.test('a server below a path', async (t) => {
  const paths: string[] = [];
  const behind = createServer((request, response) => {
    response.writeHead(404).end(request.url);
    paths.push(request.url ?? '');
  });
  const server = `${await listening(t, behind)}/k8s/c1/`;
  const { failures } = await startKubeRig(t, {
    source: { config: { kubeconfig: '', server, env: {} } },
  });
  await until(() => failures.length === 3);
  t.ok(paths.some((path) => path.startsWith('/k8s/c1/api/v1/services?')));
  t.match(failures[0], { kind: 'server', error: { message: /404 Not Found/ } });
});

t.test('a certificate that is not trusted, has expired or another name, is refused', async (t) => {
  const here = await place(t);
  const { certs } = here;
  const other = await makeAuthority(t, 'other');
  const named = await certs.issue('named', 'DNS:kubernetes.default');
  for (const [pair, problem] of [
    [await other.issue('server'), /not signed by a trusted CA/],
    [await certs.issueExpired('old'), /: API server certificate has expired; renew it$/],
    [named, /altnames/],
  ] as const) {
    const [key, cert] = [await readFile(pair.key, 'utf8'), await readFile(pair.crt, 'utf8')];
    const tls = { ...here.tls, key, cert };
    const rig = await secureRig(t, here, {}, { tls });
    const { api, failures, store, watching, advanceUntil } = rig;
    await until(() => failures.length === 3);
    t.match(failures[0], { kind: 'tls', error: { code: 'KPNG_SOURCE_LOST', message: problem } });
    t.notOk(store.synced);
    api.setTls({ key: here.tls.key, cert: here.tls.cert });
    await advanceUntil(() => api.watches().length === 3);
    await watching();
    if (pair !== named) continue;
    const cluster = { 'tls-server-name': 'kubernetes.default' };
    await (await secureRig(t, here, { cluster }, { tls })).watching();
  }
});
