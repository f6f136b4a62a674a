/** Programs that fetch credentials. */
import { chmod, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { cutAndWatch, place, secureRig, users } from '../support/kube-access.ts';
import { until } from '../support/until.ts';

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
  const rig = await secureRig(
    t,
    here,
    { user: { exec } },
    {
      api: { auth: { tokens } },
    },
  );
  const { api, watching } = rig;
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
  await cutAndWatch(rig);
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
