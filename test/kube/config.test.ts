import { mkdir, writeFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import t, { type Test } from 'tap';
import type { KpngError } from '../../src/errors.ts';
import { type KubeApi, openKubeApi } from '../../src/kube/api.ts';
import {
  type ApiConfig,
  type ConfigOptions,
  loadConfig,
  proxyFromEnvironment,
} from '../../src/kube/config.ts';
import { expiryOf, identify } from '../../src/kube/refusal.ts';
import { DEFAULT_KUBE_LIMITS } from '../../src/kube/limits.ts';
import { openKubeSource } from '../../src/kube/source.ts';
import { SELECTION, tokenOf } from '../support/kube-rig.ts';
import { shortDir } from '../support/short-dir.ts';

async function directory(t: Test): Promise<(name: string, text: string) => Promise<string>> {
  const path = shortDir(t);
  return async (name, text) => {
    const file = join(path, name);
    await mkdir(join(file, '..'), { recursive: true });
    await writeFile(file, text);
    return file;
  };
}

const GOOD = `
apiVersion: v1
kind: Config
current-context: main
contexts:
- {name: main, context: {cluster: east, user: kpng}}
clusters:
- {name: east, cluster: {server: "https://east.example:6443/"}}
users:
- {name: kpng, user: {token: abc}}
`;

function load(options: Partial<ConfigOptions>): Promise<ApiConfig> {
  return loadConfig({ kubeconfig: '', server: '', env: {}, ...options });
}

function problem(options: Partial<ConfigOptions>): Promise<string> {
  return load(options).then(
    () => 'none',
    (error: KpngError) => `${error.code}: ${error.message}`,
  );
}

t.test('a kubeconfig: server, context and where it comes from', async (t) => {
  const write = await directory(t);
  const kubeconfig = await write('config', GOOD);
  t.match(await load({ kubeconfig }), {
    origin: kubeconfig,
    server: { href: 'https://east.example:6443/' },
    context: 'main',
    proxy: undefined,
  });
  const other = await load({ kubeconfig, server: 'https://west.example' });
  t.equal(other.server.href, 'https://west.example/', '--server goes before it');
  const env = { HTTPS_PROXY: 'http://proxy.example:3128' };
  t.equal((await load({ kubeconfig, env })).proxy, 'http://proxy.example:3128');
  t.equal((await load({ server: '127.0.0.1:8001' })).server.href, 'http://127.0.0.1:8001/');
});

t.test('several files: the first value counts', async (t) => {
  const write = await directory(t);
  const first = await write('one', GOOD);
  const second = await write(
    'two',
    GOOD.replace('east.example', 'other.example')
      .replace('current-context: main', 'current-context: else')
      .replace('token: abc', 'token: xyz'),
  );
  const config = await load({ kubeconfig: [first, second].join(delimiter) });
  t.equal(config.server.host, 'east.example:6443');
  const users = '\nusers:\n- {name: kpng, user: {token: abc}}\n';
  const rest = await write('rest', GOOD.replace(users, '\n'));
  const apart = await load({ kubeconfig: [rest, await write('users', users)].join(delimiter) });
  t.equal(apart.user, 'kpng');
});

const MANY = Array.from({ length: 30 }, (_, i) => `- {name: c${i}, context: {cluster: c${i}}}\n`);
const WEST = '- {name: west, cluster: {server: "https://west.example:6443/"}}\n';
const NO_CONTEXT = GOOD.replace('current-context: main', '');

t.test('errors in a configuration', async (t) => {
  const write = await directory(t);
  for (const [text, expected] of [
    ['', /^KPNG_KUBECONFIG: .* it is empty, or not a kubeconfig$/],
    ['- a\n', /not a kubeconfig/],
    ['a: [1\n', /^KPNG_KUBECONFIG/],
    [`${GOOD}- null\n`, /users\[1\]: expected a name and a user$/],
    [`${GOOD}# ${'x'.repeat(2 ** 20)}`, /larger than 1Mi$/],
    [
      NO_CONTEXT.replace('contexts:\n', `contexts:\n${MANY.join('')}`).replace(
        'clusters:\n',
        `clusters:\n${WEST}`,
      ),
      /there is no current context; set current-context to one of "c0", .*"c9" and 21 more \(kubectl/,
    ],
    [
      GOOD.replace('current-context: main', 'current-context: nope'),
      /there is no context "nope", which is the current one; set current-context to one of "main" \(kubectl/,
    ],
    [GOOD.replace('cluster: east,', 'cluster: west,'), /there is no cluster "west"/],
    [
      GOOD.replace('https://east', 'ftp://me:secret@east'),
      /me:\*\*\*@east.*is not the URL of a server/,
    ],
    [GOOD.replace('server:', 'sever:'), /"" is not the URL of a server/],
  ] as const) {
    t.match(await problem({ kubeconfig: await write('c', text) }), expected);
  }
  t.match(await problem({ kubeconfig: '/nowhere/config' }), /^KPNG_KUBECONFIG: .*ENOENT/);
  t.match(
    await problem({}),
    /^KPNG_KUBECONFIG: .*\(in-cluster\): neither --kubeconfig, KUBECONFIG nor --server is given, and this process does not run in a pod/,
  );
});

const ACCOUNT = 'var/run/secrets/kubernetes.io/serviceaccount';

/** The access of a process in a pod. */
function inPod(podRoot: string, host: string, more = {}): Promise<KubeApi> {
  const env = { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: '8080', ...more };
  const limits = DEFAULT_KUBE_LIMITS;
  return openKubeApi({ kubeconfig: '', server: '', env, podRoot, limits, userAgent: 'test' });
}

t.test('in a pod, behind a proxy or not', async (t) => {
  const write = await directory(t);
  const claims = { sub: 'system:serviceaccount:kube-system:kpng' };
  const jwt = tokenOf(claims);
  const token = await write(`${ACCOUNT}/token`, `${jwt}\n`);
  await write(`${ACCOUNT}/ca.crt`, 'authority');
  const proxy = 'http://proxy.example:3128';
  for (const [host, url, env] of [
    ['10.96.0.1', 'https://10.96.0.1:8080/', {}],
    ['fd00::1', 'https://[fd00::1]:8080/', {}],
    ['10.96.0.1', 'https://10.96.0.1:8080/', { HTTPS_PROXY: proxy }],
  ] as const) {
    const api = await inPod(token.slice(0, -`/${ACCOUNT}/token`.length), host, env);
    t.equal(api.config.server.href, url);
    t.equal(api.config.origin, 'in-cluster');
    t.equal(api.config.proxy, 'HTTPS_PROXY' in env ? proxy : undefined);
    const got = await api.access();
    t.equal(got.headers['Authorization'], `Bearer ${jwt}`);
    t.equal(got.identity.user, claims.sub);
    api.close();
  }
  await t.rejects((await inPod('/nowhere', '10.96.0.1')).access(), {
    kind: 'credentials',
    message: /^no credentials for https:\/\/10\.96\.0\.1:8080: ENOENT/,
  });
});

t.test('a proxy name that no label can have', async (t) => {
  const config = { kubeconfig: '', server: 'http://127.0.0.1:1', env: {} };
  for (const proxyName of ['-x', 'a b', 'x'.repeat(64), 'a,b']) {
    const selection = { ...SELECTION, proxyName };
    await t.rejects(openKubeSource({ config, selection, userAgent: 'test' }), {
      code: 'KPNG_USAGE',
    });
  }
});

t.test('identifies the user from the credentials, as far as they name one', async (t) => {
  for (const [authorization, certificate, by] of [
    ['Bearer opaque', undefined, 'token'],
    ['Bearer a.%%%.c', undefined, 'token'],
    ['Bearer a.W10.c', undefined, 'token'],
    ['Basic xyz', undefined, 'password'],
    [undefined, 'no certificate', 'certificate'],
  ] as const) {
    t.match(identify(authorization, certificate, 'u'), { user: 'u', by, expiresAt: undefined });
  }
  t.match(identify(undefined, undefined, 'u'), { user: 'system:anonymous', by: 'nothing' });
  const certificate = { user: 'u', by: 'certificate', expiresAt: 1000 } as const;
  t.match(expiryOf(certificate, 1000), /^the client certificate expired at 1970-01-01T00:00:01/);
  t.equal(expiryOf(certificate, 999), undefined);
  t.equal(expiryOf({ ...certificate, expiresAt: Number.NaN }, 5000), undefined);
});

const PROXY = 'http://proxy.example:3128';

t.test('the proxy of the scheme, in upper or lower case', async (t) => {
  for (const [server, env, proxy] of [
    ['https://api.example:6443', {}, undefined],
    ['https://api.example:6443', { HTTPS_PROXY: PROXY }, PROXY],
    ['https://api.example:6443', { https_proxy: PROXY, HTTP_PROXY: 'http://other' }, PROXY],
    ['http://api.example', { http_proxy: PROXY, HTTPS_PROXY: 'http://other' }, PROXY],
    ['https://api.example', { HTTPS_PROXY: 'proxy.example:3128' }, PROXY],
  ] as const) {
    t.equal(proxyFromEnvironment(new URL(server), env), proxy);
  }
});

t.test('loopback and what NO_PROXY names need no proxy', async (t) => {
  const cases: [host: string, noProxy: string, exempt: boolean][] = [
    ['api.example', 'api.example', true],
    ['API.example', 'api.EXAMPLE', true],
    ['api.example', 'example', true],
    ['api.example', '.example', true],
    ['example', '.example', false],
    ['api.example', '*.example', true],
    ['apiexample', 'example', false],
    ['api.example', 'other, api.example', true],
    ['api.example', '*', true],
    ['api.example', 'api.example:6443', true],
    ['api.example', 'api.example:443', false],
    ['10.96.0.1', '10.96.0.0/12', true],
    ['10.96.0.1', '10.97.0.0/16', false],
    ['10.96.0.1', '10.96.0.1', true],
    ['10.96.0.1', '10.96.0.0/99', false],
    ['api.example', '10.0.0.0/8', false],
    ['[fd00::1]', 'fd00::/8', true],
    ['[fd00::1]', 'fd00::1', true],
    ['[fd00::1]', '10.0.0.0/8', false],
    ['api.example', ' ,, ', false],
    ['localhost', '', true],
    ['127.9.9.9', '', true],
    ['[::1]', '', true],
  ];
  for (const [host, noProxy, exempt] of cases) {
    const env = { HTTPS_PROXY: PROXY, NO_PROXY: noProxy };
    const proxy = proxyFromEnvironment(new URL(`https://${host}:6443`), env);
    t.equal(proxy === undefined, exempt, `${host} with ${noProxy}`);
  }
});
