/** As whom the server is asked: tokens, certificates, impersonation. */
import { chmod, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { kubeStarted } from '../../src/kube/events.ts';
import {
  certifiedUser,
  config,
  cutAndWatch,
  type Place,
  place,
  secureRig,
  startKubeRig,
  tokenOf,
  users,
} from '../support/kube-rig.ts';
import { collect, freePort } from '../support/sockets.ts';
import { until } from '../support/until.ts';

t.test('a client certificate; one that is replaced counts from the next request on', async (t) => {
  const here = await place(t);
  const started = collect(t, kubeStarted);
  const { user, replace } = await certifiedUser(here);
  const rig = await secureRig(t, here, { user }, { api: { auth: {} } });
  const { api, watching } = rig;
  await watching();
  t.match(started, [{ context: 'test', user: 'first', by: 'certificate', proxy: undefined }]);
  await replace();
  await cutAndWatch(rig);
  t.strictSame(users(api), ['first', 'second']);
});

t.test('a token file is read again, and may end with a newline', async (t) => {
  const here = await place(t);
  const tokens = new Map([['one', 'one']]);
  await here.write('token', 'one\n');
  const user = { tokenFile: 'token', token: 'not this one' };
  const rig = await secureRig(t, here, { user }, { api: { auth: { tokens } } });
  const { api, watching, failures } = rig;
  await watching();
  await here.write('token', 'two\n');
  tokens.clear();
  tokens.set('two', 'two');
  await cutAndWatch(rig);
  t.strictSame(users(api), ['one', 'two']);
  t.ok(
    failures.some(({ kind }) => kind === 'unauthorized'),
    'the old one was tried once more',
  );
});

t.test('rejected credentials: the message names the user, or says they have expired', async (t) => {
  const here = await place(t);
  const exp = Date.parse('2026-01-02T03:04:05Z') / 1000;
  for (const [claims, reason] of [
    [{ sub: 'kpng', exp }, 'the token expired at 2026-01-02T03:04:05.000Z'],
    [{ sub: 'kpng' }, 'the server does not accept the token of "kpng"'],
  ] as const) {
    const user = { token: tokenOf(claims) };
    const { failures } = await secureRig(t, here, { user }, { api: { auth: {} } });
    await until(() => failures.length >= 3);
    t.match(failures[0], { kind: 'unauthorized', error: { code: 'KPNG_KUBE_UNAUTHORIZED' } });
    t.ok(failures[0]?.error.message.endsWith(`: 401 Unauthorized; ${reason}`));
  }
});

t.test('impersonated users', async (t) => {
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
  const at = await freePort();
  const cluster = { server: `http://127.0.0.1:${at}`, 'certificate-authority': undefined };
  const kubeconfig = await config(here, at, { cluster, user: { token: 'secret' } });
  const { api, watching } = await startKubeRig(t, { kubeconfig, api: { port: at } });
  await watching();
  t.ok(api.requests.length > 0);
  t.ok(api.requests.every(({ headers }) => headers.authorization === undefined));
});

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

t.test('a program that fetches credentials is run again when they are refused', async (t) => {
  const here = await place(t);
  const { user, read, runs } = await program(
    here,
    'token=$(cat current)',
    'echo "$KUBERNETES_EXEC_INFO" > info',
  );
  await here.write('current', 'one');
  const tokens = new Map([['one', 'one']]);
  const rig = await secureRig(t, here, { user }, { api: { auth: { tokens } } });
  const { api, watching } = rig;
  await watching();
  t.equal(await runs(), 1, 'once for all three');
  t.match(JSON.parse(await read('info')), { kind: 'ExecCredential', apiVersion: EXEC });
  await here.write('current', 'two');
  tokens.clear();
  tokens.set('two', 'two');
  await cutAndWatch(rig);
  t.strictSame(users(api), ['one', 'two']);
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
  const other = await secureRig(t, await place(t), { user: { exec: silent } });
  await until(() => other.failures.length > 0);
  t.match(other.failures[0]?.error.message, /: the program that fetches them failed without/);
});

t.test('a program that hangs is not started a second time', async (t) => {
  const here = await place(t);
  const { user, runs } = await program(here, 'while [ ! -e go ]; do sleep 0.05; done', 'token=one');
  const auth = { tokens: new Map([['one', 'one']]) };
  const rig = await secureRig(t, here, { user }, { api: { auth } });
  const { api, failures, advanceUntil } = rig;
  t.teardown(() => here.write('go', ''));
  await advanceUntil(() => failures.length >= 6, 5000);
  t.match(failures[0], { kind: 'credentials', error: { message: /: timed out after 60 s$/ } });
  await here.write('go', '');
  await advanceUntil(() => api.watches().length === 3);
  t.equal(await runs(), 1);
});
