import {
  copyFileSync,
  mkdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { once } from 'node:events';
import { credentials, status } from '@grpc/grpc-js';
import t, { type Test } from 'tap';
import { handshakeFailed, serverListening, tlsFilesChanged } from '../../src/server/events.ts';
import { followTlsFiles } from '../../src/server/tls.ts';
import { LISTEN_TLS_FLAGS, readTls } from '../../src/util/tls-files.ts';
import { TLS_POLL_MS } from '../../src/util/tls-follow.ts';
import { connectApi, portOf, startApiRig } from '../support/api-rig.ts';
import { makeAuthority } from '../support/certs.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { collect } from '../support/sockets.ts';
import { until } from '../support/until.ts';

const authority = await makeAuthority(t);
const [first, second] = [await authority.issue('first'), await authority.issue('second')];
const ssl = credentials.createSsl(readFileSync(authority.ca));
const stranger = await makeAuthority(t, 'stranger');

function credentialsOf(ca: Buffer, { key, crt }: { key: string; crt: string }) {
  return credentials.createSsl(ca, readFileSync(key), readFileSync(crt));
}

t.test('with a certificate only, clients need none', async (t) => {
  const heard = collect(t, serverListening);
  const { cluster, watch } = await startApiRig(t, {
    tls: await readTls(first, LISTEN_TLS_FLAGS),
    client: { credentials: ssl },
  });
  t.match(heard, [{ security: 'tls', exposed: false }]);
  cluster.complete();
  t.strictSame(await watch().ask('n'), ['R', 'Y']);
});

t.test('with authorities, clients have to show a certificate of theirs', async (t) => {
  const failed = collect(t, handshakeFailed);
  const heard = collect(t, serverListening);
  const tls = await readTls({ ...first, ca: authority.ca }, LISTEN_TLS_FLAGS);
  const ca = readFileSync(authority.ca);
  await t.test('a client with a certificate is admitted', async (t) => {
    const mine = credentialsOf(ca, await authority.issue('client'));
    const { cluster, watch } = await startApiRig(t, { tls, client: { credentials: mine } });
    cluster.complete();
    t.strictSame(await watch().ask('n'), ['R', 'Y']);
  });
  for (const [name, theirs] of [
    ['none', ssl],
    ['that of a stranger', credentialsOf(ca, await stranger.issue('unknown'))],
    ['plaintext', credentials.createInsecure()],
  ] as const) {
    await t.test(`refused: ${name}`, async (t) => {
      failed.length = 0;
      const { cluster, watch } = await startApiRig(t, { tls, client: { credentials: theirs } });
      cluster.complete();
      const call = watch();
      call.request('n');
      t.equal((await call.status).code, status.UNAVAILABLE);
      await until(() => failed.length > 0);
      if (name === 'plaintext') t.match(failed[0]?.error.message, /does not speak TLS/);
    });
  }
  t.match(heard[0], { security: 'mtls' });
});

/** A server whose files are a copy of the first pair, with time that stands still. */
async function serve(t: Test) {
  const folder = t.testdir({});
  const files = { crt: join(folder, 'tls.crt'), key: join(folder, 'tls.key'), ca: '' };
  const put = (pair: { crt: string; key: string }): void => {
    copyFileSync(pair.crt, files.crt);
    copyFileSync(pair.key, files.key);
  };
  put(first);
  const material = await readTls(files, LISTEN_TLS_FLAGS);
  if (material === undefined) throw new Error('no TLS');
  const rig = await startApiRig(t, { tls: material, client: { credentials: ssl } });
  rig.cluster.complete();
  const clock = new FakeClock();
  const heard = collect(t, tlsFilesChanged);
  t.teardown(followTlsFiles(rig.server, files, material, clock));
  return { ...rig, files, put, clock, heard, look: () => lookOnce(clock) };
}

/** Lets the next look happen, and resolves when it is over. */
async function lookOnce(clock: FakeClock): Promise<void> {
  await until(() => clock.pending === 1);
  clock.advance(TLS_POLL_MS);
  await until(() => clock.pending === 1);
}

/** The name in the certificate that a new connection is shown. */
async function shown({ server }: Awaited<ReturnType<typeof serve>>): Promise<string> {
  const port = portOf(server);
  const ca = readFileSync(authority.ca);
  const socket = connect({ port, host: '127.0.0.1', ca, ALPNProtocols: ['h2'] });
  await once(socket, 'secureConnect');
  const { subject } = socket.getPeerCertificate();
  socket.destroy();
  return String(subject.CN);
}

t.test('a new certificate is shown to new clients, and the others stay', async (t) => {
  const rig = await serve(t);
  const call = rig.watch();
  t.strictSame(await call.ask('n'), ['R', 'Y']);
  await rig.look();
  t.equal(await shown(rig), 'first');
  rig.put(second);
  await rig.look();
  t.equal(await shown(rig), 'second');
  t.match(rig.heard, [{ error: undefined, validUntil: Number }]);
  call.request('n');
  rig.cluster.service('demo/web');
  t.strictSame(await call.texts(), ['S1 demo/web', 'Y'], 'the connection from before works on');
  const { watch } = connectApi(t, rig.server, { credentials: ssl });
  t.strictSame(await watch().ask('n'), ['R', 'S1 demo/web', 'Y']);
});

t.test('a certificate without its key changes nothing, and is reported once', async (t) => {
  const rig = await serve(t);
  copyFileSync(second.crt, rig.files.crt);
  await rig.look();
  await rig.look();
  t.equal(await shown(rig), 'first');
  t.match(rig.heard, [{ error: { code: 'KPNG_TLS_FILE', message: /does not belong/ } }]);
  copyFileSync(second.key, rig.files.key);
  await rig.look();
  t.equal(await shown(rig), 'second');
  t.equal(rig.heard.length, 2);
});

t.test('files that are gone, no PEM, or the same once more', async (t) => {
  const rig = await serve(t);
  rmSync(rig.files.crt);
  await rig.look();
  t.match(rig.heard.at(-1), { error: { message: /--listen-tls-crt .*ENOENT/ } });
  writeFileSync(rig.files.crt, 'nothing');
  await rig.look();
  t.match(rig.heard.at(-1), { error: { message: /not a PEM file/ } });
  rig.put(first);
  await rig.look();
  t.equal(await shown(rig), 'first');
  t.equal(rig.heard.length, 2, 'what is the same as before is no news');
});

t.test('files behind a link, as in a mounted secret', async (t) => {
  const folder = t.testdir({});
  for (const [name, pair] of Object.entries({ first, second })) {
    mkdirSync(join(folder, name));
    copyFileSync(pair.crt, join(folder, name, 'tls.crt'));
    copyFileSync(pair.key, join(folder, name, 'tls.key'));
  }
  const data = join(folder, '..data');
  symlinkSync('first', data);
  const files = { crt: join(data, 'tls.crt'), key: join(data, 'tls.key') };
  const material = await readTls(files, LISTEN_TLS_FLAGS);
  if (material === undefined) throw new Error('no TLS');
  const got: (string | undefined)[] = [];
  const clock = new FakeClock();
  const server = { replaceTls: ({ identity }: typeof material) => void got.push(identity?.crt) };
  t.teardown(followTlsFiles(server, files, material, clock));
  await lookOnce(clock);
  unlinkSync(data);
  symlinkSync('second', data);
  await lookOnce(clock);
  t.strictSame(got, [readFileSync(second.crt, 'latin1')]);
});

t.test('authorities that are replaced decide about new clients', async (t) => {
  const folder = t.testdir({});
  const files = { ...first, ca: join(folder, 'ca.crt') };
  copyFileSync(authority.ca, files.ca);
  const material = await readTls(files, LISTEN_TLS_FLAGS);
  if (material === undefined) throw new Error('no TLS');
  const mine = credentialsOf(readFileSync(authority.ca), await stranger.issue('client'));
  const rig = await startApiRig(t, { tls: material, client: { credentials: mine } });
  rig.cluster.complete();
  const clock = new FakeClock();
  t.teardown(followTlsFiles(rig.server, files, material, clock));
  const refused = rig.watch();
  refused.request('n');
  t.equal((await refused.status).code, status.UNAVAILABLE);
  copyFileSync(stranger.ca, files.ca);
  await lookOnce(clock);
  const { watch } = connectApi(t, rig.server, { credentials: mine });
  t.strictSame(await watch().ask('n'), ['R', 'Y']);
});

t.test('nothing is checked after its end', async (t) => {
  const rig = await serve(t);
  await rig.look();
  const material = await readTls(rig.files, LISTEN_TLS_FLAGS);
  if (material === undefined) throw new Error('no TLS');
  const clock = new FakeClock();
  const end = followTlsFiles(rig.server, rig.files, material, clock);
  end();
  t.equal(clock.pending, 0);
});
