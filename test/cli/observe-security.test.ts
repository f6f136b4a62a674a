/** TLS and authentication of the pages for metrics and health. */
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import t, { type Test } from 'tap';
import { isExposed } from '../../src/cli/flags/global.ts';
import { makeAuthority } from '../support/certs.ts';
import { runCli, startCli, type Cli } from '../support/cli.ts';
import { startFakeApi } from '../support/fake-api/server.ts';
import { shortDir } from '../support/short-dir.ts';

/** `url` is the address that is bound; it is asked on loopback. */
async function get(url: string, path: string, ca: string, token?: string) {
  const { port } = new URL(url);
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
  const options = { host: '127.0.0.1', port, path, ca: readFileSync(ca), headers, agent: false };
  const [answer] = (await once(request(options).end(), 'response')) as [IncomingMessage];
  return { status: answer.statusCode, body: await text(answer), headers: answer.headers };
}

function start(t: Test, ...flags: string[]): Cli {
  const state = join(shortDir(t), 'state.yaml');
  writeFileSync(state, 'nodes: []\nservices: []\n');
  return startCli(t, ['file', '--input', state, 'to-json', ...flags]);
}

t.test('metrics beyond loopback: HTTPS, and only for authorized clients', async (t) => {
  const authority = await makeAuthority(t);
  const { crt, key } = await authority.issue('metrics');
  const api = await startFakeApi(t);
  api.reviews.tokens.set('good', { username: 'prometheus', groups: ['monitoring'] });
  api.reviews.tokens.set('other', { username: 'other', groups: [] });
  api.reviews.allowed.set('monitoring', ['/metrics']);
  const kubeconfig = join(shortDir(t), 'kubeconfig');
  writeFileSync(
    kubeconfig,
    `clusters: [{name: c, cluster: {server: "${api.url}"}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
current-context: x
`,
  );
  const cli = start(
    t,
    '--metrics-bind-address=0.0.0.0:0',
    '--metrics-authentication=delegated',
    `--authentication-kubeconfig=${kubeconfig}`,
    `--metrics-tls-crt=${crt}`,
    `--metrics-tls-key=${key}`,
  );
  const url = String((await cli.line('Serving metrics'))['url']);
  t.match(url, /^https:/);
  const status = async (path: string, token?: string) =>
    (await get(url, path, authority.ca, token)).status;
  t.match(await get(url, '/metrics', authority.ca), {
    status: 401,
    headers: { 'www-authenticate': 'Bearer' },
  });
  t.equal(await status('/metrics', 'stolen'), 401);
  t.equal(await status('/metrics', 'other'), 403);
  t.equal(await status('/configz', 'good'), 403);
  t.equal(await status('/no-such-page'), 401, 'not even what there is');
  t.equal(await status('/livez'), 200, 'probes bring no token');
  const page = await get(url, '/metrics', authority.ca, 'good');
  t.equal(page.status, 200);
  t.match(page.body, /kpng_userspace_authentications_total\{result="forbidden"\} 2/);
  await api.stop();
  t.equal(await status('/metrics', 'a-new-one'), 503, 'fails closed');
  await cli.line('Token review failed; request for metrics refused');
});

t.test('health over HTTPS; on loopback no token is needed', async (t) => {
  const authority = await makeAuthority(t);
  const { crt, key } = await authority.issue('health');
  const files = [`--healthz-tls-crt=${crt}`, `--healthz-tls-key=${key}`];
  const metrics = ['--metrics-bind-address=127.0.0.1:0', '--metrics-authentication=delegated'];
  const cli = start(t, '--healthz-bind-address=127.0.0.1:0', ...files, ...metrics);
  const url = String((await cli.line('Serving health'))['url']);
  t.equal((await get(url, '/livez', authority.ca)).status, 200);
  for (let times = 0; times < 3; times += 1) {
    const plain = fetch(`${url.replace('https', 'http')}/livez`);
    await t.rejects(plain, 'plain HTTP is not served');
  }
  const warning = await cli.line('Client used http:// on an HTTPS port; it must use https://');
  t.match(warning, { level: 'warn', server: 'health', client: /^127\.0\.0\.1:\d+$/ });
  t.equal(cli.log.filter(({ msg }) => msg === warning.msg).length, 1, 'once');
  const page = String((await cli.line('Serving metrics'))['url']);
  t.equal((await fetch(`${page}/metrics`)).status, 200);
});

t.test('contradictory flags are reported before anything is served', async (t) => {
  const state = join(shortDir(t), 'state.yaml');
  writeFileSync(state, 'services: []\n');
  const line = ['file', '-i', state, 'to-json', '--metrics-bind-address=127.0.0.1:0'];
  const missing = await runCli([...line, '--metrics-tls-crt=/no/such', '--metrics-tls-key=/no']);
  t.match(missing, { code: 2, stderr: /--metrics-tls-crt \/no\/such.*KPNG_TLS_FILE/s });
  t.same(
    ['127.0.0.1', '127.9.9.9', '::1', 'localhost', '', '0.0.0.0', '::', '10.0.0.1'].map((host) =>
      isExposed({ host, port: 1 }),
    ),
    [false, false, false, false, true, true, true, true],
  );
});
