/** Certificates of the server. */
import { readFile } from 'node:fs/promises';
import t from 'tap';
import { makeAuthority } from '../support/certs.ts';
import { place, secureRig } from '../support/kube-access.ts';
import { until } from '../support/until.ts';

t.test('a server whose certificate is not to be trusted', async (t) => {
  const here = await place(t);
  const other = await makeAuthority(t, 'other');
  const { failures, store } = await secureRig(t, here, {
    cluster: { 'certificate-authority': other.ca },
  });
  await until(() => failures.length === 3);
  t.match(failures[0], { kind: 'tls', error: { code: 'KPNG_SOURCE_LOST' } });
  t.match(failures[0]?.error.message, /not signed by a trusted CA/);
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
  t.match(failures[0]?.error.message, /: API server certificate has expired$/);
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
