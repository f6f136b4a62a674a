import { readFileSync } from 'node:fs';
import { credentials, status } from '@grpc/grpc-js';
import t from 'tap';
import { handshakeFailed, serverListening, type ServerListening } from '../../src/server/events.ts';
import { LISTEN_TLS_FLAGS, readTls } from '../../src/util/tls-files.ts';
import { startApiRig } from '../support/api-rig.ts';
import { makeAuthority } from '../support/certs.ts';
import { listening } from '../support/mailbox.ts';
import { until } from '../support/until.ts';

const authority = await makeAuthority(t);
const stranger = await makeAuthority(t, 'stranger');
const server = await authority.issue('server');
const client = await authority.issue('client');
const unknown = await stranger.issue('unknown');
const read = (path: string): Buffer => readFileSync(path);

t.test('with a certificate only, clients need none', async (t) => {
  const heard: ServerListening[] = [];
  listening(t, serverListening, (event) => heard.push(event));
  const { cluster, watch } = await startApiRig(t, {
    tls: await readTls(server, LISTEN_TLS_FLAGS),
    client: { credentials: credentials.createSsl(read(authority.ca)) },
  });
  t.match(heard, [{ security: 'tls', exposed: false }]);
  cluster.complete();
  const call = watch();
  call.request('n');
  t.strictSame(await call.texts(), ['R', 'Y']);
});

t.test('with authorities, clients have to show a certificate of theirs', async (t) => {
  const failed: string[] = [];
  const heard: ServerListening[] = [];
  listening(t, handshakeFailed, ({ error }) => failed.push(error.message));
  listening(t, serverListening, (event) => heard.push(event));
  const tls = await readTls({ ...server, ca: authority.ca }, LISTEN_TLS_FLAGS);
  const ca = read(authority.ca);
  await t.test('a client with a certificate is admitted', async (t) => {
    const ssl = credentials.createSsl(ca, read(client.key), read(client.crt));
    const { cluster, watch } = await startApiRig(t, { tls, client: { credentials: ssl } });
    cluster.complete();
    const call = watch();
    call.request('n');
    t.strictSame(await call.texts(), ['R', 'Y']);
  });
  for (const [name, ssl] of [
    ['none', credentials.createSsl(ca)],
    ['that of a stranger', credentials.createSsl(ca, read(unknown.key), read(unknown.crt))],
    ['plaintext', credentials.createInsecure()],
  ] as const) {
    await t.test(`refused: ${name}`, async (t) => {
      failed.length = 0;
      const { cluster, watch } = await startApiRig(t, { tls, client: { credentials: ssl } });
      cluster.complete();
      const call = watch();
      call.request('n');
      t.equal((await call.status).code, status.UNAVAILABLE);
      await until(() => failed.length > 0);
      if (name === 'plaintext') t.match(failed[0], /does not speak TLS/);
    });
  }
  t.match(heard[0], { security: 'mtls' });
});
