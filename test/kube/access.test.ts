/** How the server is reached and as whom: kubeconfig files, tokens, certificates, proxies. */
import { once } from 'node:events';
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { kubeStarted } from '../../src/kube/events.ts';
import { makeAuthority, type CertFiles } from '../support/certs.ts';
import { service } from '../support/fake-api/objects.ts';
import type { FakeApi } from '../support/fake-api/server.ts';
import { startKubeRig, type KubeRig, type KubeRigOptions } from '../support/kube-rig.ts';
import { collect } from '../support/sockets.ts';
import { until } from '../support/until.ts';

interface Place {
  readonly certs: CertFiles;
  readonly tls: { readonly key: string; readonly cert: string; readonly ca: string };
  write(name: string, text: string): Promise<string>;
}

async function place(t: Test): Promise<Place> {
  const certs = await makeAuthority(t);
  const { key, crt } = await certs.issue('server');
  const directory = await mkdtemp(join(tmpdir(), 'kpng-kube-'));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  return {
    certs,
    tls: {
      key: await readFile(key, 'utf8'),
      cert: await readFile(crt, 'utf8'),
      ca: await readFile(certs.ca, 'utf8'),
    },
    async write(name, text) {
      const path = join(directory, name);
      await writeFile(path, text);
      return path;
    },
  };
}

interface Config {
  readonly cluster?: object;
  readonly user?: object;
}

/** Writes a kubeconfig for a port, in YAML as people write it, or rather JSON, which is YAML. */
function config(here: Place, port: number, { cluster, user }: Config): Promise<string> {
  return here.write(
    'kubeconfig.yaml',
    JSON.stringify({
      apiVersion: 'v1',
      kind: 'Config',
      'current-context': 'test',
      contexts: [{ name: 'test', context: { cluster: 'c', user: 'u' } }],
      clusters: [
        {
          name: 'c',
          cluster: {
            server: `https://127.0.0.1:${port}`,
            'certificate-authority': here.certs.ca,
            ...cluster,
          },
        },
      ],
      users: [{ name: 'u', user }],
    }),
  );
}

/** A port that nobody uses, to write it down before the server starts. */
async function port(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

async function secureRig(
  t: Test,
  here: Place,
  given: Config,
  options: KubeRigOptions = {},
): Promise<KubeRig> {
  const at = await port();
  return startKubeRig(t, {
    kubeconfig: await config(here, at, given),
    prepare: (api) => api.upsert('services', service('demo/web', '10.96.0.10')),
    ...options,
    api: { tls: here.tls, port: at, ...options.api },
  });
}

const users = (api: FakeApi): string[] => [...new Set(api.requests.map(({ user }) => user))];

t.test('TLS with the authority of the kubeconfig, and a token', async (t) => {
  const here = await place(t);
  const started = collect(t, kubeStarted);
  const auth = { tokens: new Map([['secret', 'system:serviceaccount:kube-system:kpng']]) };
  const { api, watching } = await secureRig(
    t,
    here,
    { user: { token: 'secret' } },
    { api: { auth } },
  );
  await watching();
  t.strictSame(users(api), ['system:serviceaccount:kube-system:kpng']);
  t.match(started, [{ context: 'test', user: 'u', by: 'token', proxy: undefined }]);
});

t.test('the user of a token is read from it', async (t) => {
  const here = await place(t);
  const started = collect(t, kubeStarted);
  const claims = { sub: 'system:serviceaccount:kube-system:kpng' };
  const token = `x.${Buffer.from(JSON.stringify(claims)).toString('base64url')}.y`;
  const auth = { tokens: new Map([[token, 'kpng']]) };
  const { watching } = await secureRig(t, here, { user: { token } }, { api: { auth } });
  await watching();
  t.match(started, [{ user: claims.sub }]);
});

t.test('a client certificate', async (t) => {
  const here = await place(t);
  const { key, crt } = await here.certs.issue('kpng-node');
  const started = collect(t, kubeStarted);
  const user = { 'client-certificate': crt, 'client-key': key };
  const { api, watching } = await secureRig(t, here, { user }, { api: { auth: {} } });
  await watching();
  t.strictSame(users(api), ['kpng-node']);
  t.match(started, [{ user: 'kpng-node', by: 'certificate' }]);
});

t.test('a certificate that is replaced is shown from the next request on', async (t) => {
  const here = await place(t);
  const first = await here.certs.issue('first');
  const second = await here.certs.issue('second');
  const crt = await here.write('user.crt', await readFile(first.crt, 'utf8'));
  const key = await here.write('user.key', await readFile(first.key, 'utf8'));
  const user = { 'client-certificate': crt, 'client-key': key };
  const { api, watching, failures, advanceUntil } = await secureRig(
    t,
    here,
    { user },
    { api: { auth: {} } },
  );
  await watching();
  await writeFile(crt, await readFile(second.crt, 'utf8'));
  await writeFile(key, await readFile(second.key, 'utf8'));
  api.cut();
  await until(() => failures.length === 3);
  await advanceUntil(() => api.watches().length === 3);
  t.strictSame(users(api), ['first', 'second']);
});

t.test('a token file is read again, and may end with a newline', async (t) => {
  const here = await place(t);
  const tokens = new Map([['one', 'one']]);
  await here.write('token', 'one\n');
  const user = { tokenFile: 'token', token: 'not this one' };
  const { api, watching, failures, advanceUntil } = await secureRig(
    t,
    here,
    { user },
    {
      api: { auth: { tokens } },
    },
  );
  await watching();
  await here.write('token', 'two\n');
  tokens.clear();
  tokens.set('two', 'two');
  api.cut();
  await until(() => failures.length === 3);
  await advanceUntil(() => api.watches().length === 3);
  t.strictSame(users(api), ['one', 'two']);
  t.ok(
    failures.some(({ kind }) => kind === 'unauthorized'),
    'the old one was tried once more',
  );
});

t.test('a program that fetches credentials is run again when they are refused', async (t) => {
  const here = await place(t);
  const script = await here.write(
    'login.sh',
    `#!/bin/sh
echo run >> "$(dirname "$0")/runs"
token=$(cat "$(dirname "$0")/current")
echo "$KUBERNETES_EXEC_INFO" > "$(dirname "$0")/info"
printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s"}}' "$token"
`,
  );
  await chmod(script, 0o755);
  await here.write('current', 'one');
  const tokens = new Map([['one', 'one']]);
  const exec = { apiVersion: 'client.authentication.k8s.io/v1', command: './login.sh' };
  const { api, watching, failures, advanceUntil } = await secureRig(
    t,
    here,
    { user: { exec } },
    {
      api: { auth: { tokens } },
    },
  );
  await watching();
  const runs = async (): Promise<number> =>
    (await readFile(join(script, '../runs'), 'utf8')).split('\n').length - 1;
  t.equal(await runs(), 1, 'once for all three');
  t.match(JSON.parse(await readFile(join(script, '../info'), 'utf8')), {
    kind: 'ExecCredential',
    apiVersion: 'client.authentication.k8s.io/v1',
  });
  await here.write('current', 'two');
  tokens.clear();
  tokens.set('two', 'two');
  api.cut();
  await until(() => failures.length === 3);
  await advanceUntil(() => api.watches().length === 3);
  t.strictSame(users(api), ['one', 'two']);
});

t.test('a program that fails is told of with what it said, and tried again', async (t) => {
  const here = await place(t);
  const exec = {
    apiVersion: 'client.authentication.k8s.io/v1',
    command: 'sh',
    args: ['-c', 'echo no ticket >&2; exit 1'],
  };
  const { failures, store, clock, advanceUntil } = await secureRig(t, here, { user: { exec } });
  await until(() => failures.length === 3);
  t.match(failures[0], {
    kind: 'credentials',
    error: { code: 'KPNG_KUBE_UNAUTHORIZED', message: /^no credentials for https:.*: no ticket/s },
  });
  const end = clock.now() + 30_000;
  await advanceUntil(() => clock.now() > end && failures.length > 5, 1000);
  t.notOk(store.synced);
});

t.test('credentials that expired: the message says so', async (t) => {
  const here = await place(t);
  const claims = { sub: 'kpng', exp: Date.parse('2026-01-02T03:04:05Z') / 1000 };
  const token = `x.${Buffer.from(JSON.stringify(claims)).toString('base64url')}.y`;
  const { failures } = await secureRig(t, here, { user: { token } }, { api: { auth: {} } });
  await until(() => failures.length === 3);
  t.match(failures[0], { kind: 'unauthorized', error: { code: 'KPNG_KUBE_UNAUTHORIZED' } });
  t.match(failures[0]?.error.message, /401 Unauthorized; the token expired at 2026-01-02T03:04:05/);
});

t.test('credentials that nobody knows: the message says whose they are', async (t) => {
  const here = await place(t);
  const { key, crt } = await here.certs.issue('stranger');
  const user = { 'client-certificate': crt, 'client-key': key };
  const auth = { tokens: new Map() };
  const other = await makeAuthority(t, 'other');
  const tls = { ...here.tls, ca: await readFile(other.ca, 'utf8') };
  const { failures } = await secureRig(t, here, { user }, { api: { auth, tls } });
  await until(() => failures.length === 3);
  t.match(
    failures[0]?.error.message,
    /401 Unauthorized; the server does not accept the certificate of "stranger"$/,
  );
});

t.test('a server whose certificate is not to be trusted', async (t) => {
  const here = await place(t);
  const other = await makeAuthority(t, 'other');
  const { failures, store } = await secureRig(t, here, {
    cluster: { 'certificate-authority': other.ca },
  });
  await until(() => failures.length === 3);
  t.match(failures[0], { kind: 'tls', error: { code: 'KPNG_SOURCE_LOST' } });
  t.match(failures[0]?.error.message, /signed by nobody who is trusted/);
  t.notOk(store.synced);
});

t.test('a server whose certificate has expired, and is renewed', async (t) => {
  const here = await place(t);
  const expired = await here.certs.issueExpired('old');
  const tls = {
    ...here.tls,
    key: await readFile(expired.key, 'utf8'),
    cert: await readFile(expired.crt, 'utf8'),
  };
  const { api, failures, watching, advanceUntil } = await secureRig(t, here, {}, { api: { tls } });
  await until(() => failures.length === 3);
  t.match(failures[0], { kind: 'tls' });
  t.match(failures[0]?.error.message, /: the certificate of the server has expired$/);
  api.setTls({ key: here.tls.key, cert: here.tls.cert });
  await advanceUntil(() => api.watches().length === 3);
  await watching();
  t.pass('the renewed one is taken');
});

t.test('a name that the certificate has instead of the address', async (t) => {
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

t.test('who is impersonated', async (t) => {
  const here = await place(t);
  const tokens = new Map([['secret', 'admin']]);
  const user = { token: 'secret', as: 'kpng', 'as-groups': ['system:nodes', 'ops'] };
  const { api, watching } = await secureRig(t, here, { user }, { api: { auth: { tokens } } });
  await watching();
  t.match(api.requests[0]?.headers, {
    'impersonate-user': 'kpng',
    'impersonate-group': 'system:nodes, ops',
    'user-agent': 'test',
  });
});

t.test('over plain HTTP no credentials are sent', async (t) => {
  const here = await place(t);
  const at = await port();
  const cluster = { server: `http://127.0.0.1:${at}`, 'certificate-authority': undefined };
  const kubeconfig = await config(here, at, { cluster, user: { token: 'secret' } });
  const { api, watching } = await startKubeRig(t, { kubeconfig, api: { port: at } });
  await watching();
  t.ok(api.requests.length > 0);
  t.ok(api.requests.every(({ headers }) => headers.authorization === undefined));
});

/** An HTTP proxy, and where it was asked to lead. */
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
  const first = await here.certs.issue('first');
  const second = await here.certs.issue('second');
  const crt = await here.write('user.crt', await readFile(first.crt, 'utf8'));
  const key = await here.write('user.key', await readFile(first.key, 'utf8'));
  const { api, watching, failures, advanceUntil } = await secureRig(
    t,
    here,
    {
      cluster: { 'proxy-url': url },
      user: { 'client-certificate': crt, 'client-key': key },
    },
    { api: { auth: {} } },
  );
  await watching();
  t.ok(through.length >= 3);
  t.strictSame(new Set(through), new Set([api.url.replace('https://', '')]));
  t.match(started, [{ proxy: url.replace('http://', ''), user: 'first' }]);
  await writeFile(crt, await readFile(second.crt, 'utf8'));
  await writeFile(key, await readFile(second.key, 'utf8'));
  api.cut();
  await until(() => failures.length === 3);
  await advanceUntil(() => api.watches().length === 3);
  t.strictSame(users(api), ['first', 'second']);
});

t.test('a program that does not come to an end is not run a second time', async (t) => {
  const here = await place(t);
  const script = await here.write(
    'slow.sh',
    `#!/bin/sh
cd "$(dirname "$0")"
echo run >> runs
while [ ! -e go ]; do sleep 0.05; done
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"one"}}'
`,
  );
  await chmod(script, 0o755);
  const exec = { apiVersion: 'client.authentication.k8s.io/v1', command: './slow.sh' };
  const auth = { tokens: new Map([['one', 'one']]) };
  const { api, failures, advanceUntil } = await secureRig(
    t,
    here,
    { user: { exec } },
    {
      api: { auth },
    },
  );
  t.teardown(() => here.write('go', ''));
  await advanceUntil(() => failures.length >= 6, 5000);
  t.match(failures[0], { kind: 'credentials', error: { message: /: not there after 60 s$/ } });
  await here.write('go', '');
  await advanceUntil(() => api.watches().length === 3);
  const runs = (await readFile(join(script, '../runs'), 'utf8')).trim().split('\n');
  t.equal(runs.length, 1);
});

t.test('a server below a path', async (t) => {
  const at = await port();
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
