import { copyFileSync, mkdirSync, readFileSync, renameSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { once } from 'node:events';
import { credentials, status } from '@grpc/grpc-js';
import t, { type Test } from 'tap';
import { handshakeFailed, serverListening, tlsFilesChanged } from '../../src/server/events.ts';
import { certificateOutdated, TLS_POLL_MS } from '../../src/util/tls-files.ts';
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

t.test('with authorities, clients without a certificate are refused', async (t) => {
  const failed = collect(t, handshakeFailed);
  const heard = collect(t, serverListening);
  const tls = { ...first, ca: authority.ca };
  for (const [theirs, error] of [
    [ssl, /certificate/],
    [credentials.createInsecure(), /does not speak TLS/],
  ] as const) {
    failed.length = 0;
    const { cluster, watch } = await startApiRig(t, { tls, channel: theirs });
    cluster.complete();
    const call = watch();
    call.request('n');
    t.equal((await call.status).code, status.UNAVAILABLE);
    await until(() => failed.length > 0);
    t.match(failed[0]?.error.message, error);
  }
  t.match(heard[0], { security: 'mtls' });
});

/**
 * A server whose files are copies of the first pair and of the authority, behind a link as in a mounted secret, with time
 * that stands still.
 */
async function serve(t: Test, client = ssl, withCa = false) {
  const folder = t.testdir({});
  const path = (name: string): string => join(folder, '..data', name);
  const files = { crt: path('tls.crt'), key: path('tls.key'), ca: withCa ? path('ca.crt') : '' };
  let version = 0;
  /** Swaps the link to the folder with the files. */
  const put = (pair: { crt: string; key: string }, ca = authority.ca): void => {
    const next = join(folder, `${(version += 1)}`);
    mkdirSync(next);
    copyFileSync(pair.crt, join(next, 'tls.crt'));
    copyFileSync(pair.key, join(next, 'tls.key'));
    copyFileSync(ca, join(next, 'ca.crt'));
    symlinkSync(`${version}`, join(folder, 'link'));
    renameSync(join(folder, 'link'), path('.'));
  };
  put(first);
  const clock = new FakeClock();
  const rig = await startApiRig(t, { tls: files, channel: client, clock });
  rig.cluster.complete();
  const heard = collect(t, tlsFilesChanged);
  /** Lets the next check happen, and resolves when it is over. */
  const look = async (): Promise<void> => {
    await until(() => clock.pending === 1);
    clock.advance(TLS_POLL_MS);
    await until(() => clock.pending === 1);
  };
  return { ...rig, files, put, clock, heard, look };
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
  const listening = collect(t, serverListening);
  const rig = await serve(t);
  const call = rig.watch();
  t.match(listening, [{ security: 'tls', exposed: false }]);
  t.strictSame(await call.ask('n'), ['R', 'Y'], 'without a certificate of its own');
  await rig.look();
  t.equal(await shown(rig), 'first');
  rig.put(second);
  await rig.look();
  t.equal(await shown(rig), 'second');
  t.match(rig.heard, [{ error: undefined, validUntil: Number }]);
  call.request('n');
  rig.cluster.service('demo/web');
  t.strictSame(await call.texts(), ['S1 demo/web', 'Y'], 'the connection from before works on');
  const { watch } = connectApi(t, rig.server, ssl);
  t.strictSame(await watch().ask('n'), ['R', 'S1 demo/web', 'Y']);
  rig.server.destroy();
  t.equal(rig.clock.pending, 0, 'nothing is checked after its end');
});

t.test('unusable files change nothing; an expired one is used, and reported', async (t) => {
  const outdated = collect(t, certificateOutdated);
  const rig = await serve(t);
  copyFileSync(second.crt, rig.files.crt);
  for (const _ of [1, 2]) await rig.look();
  t.match(rig.heard, [{ error: { code: 'KPNG_TLS_FILE', message: /does not belong/ } }], 'once');
  t.equal(await shown(rig), 'first');
  for (const pair of [first, await authority.issueExpired('old'), first]) {
    rig.put(pair);
    for (const _ of [1, 2]) await rig.look();
  }
  t.equal(rig.heard.length, 3, 'what is the same as before is no news');
  t.match(outdated, [{ error: { code: 'KPNG_TLS_FILE', message: /the certificate expired at/ } }]);
  t.equal(outdated.length, 1);
});

t.test('authorities that are replaced decide about new clients', async (t) => {
  const mine = credentialsOf(readFileSync(authority.ca), await stranger.issue('client'));
  const rig = await serve(t, mine, true);
  const refused = rig.watch();
  refused.request('n');
  t.equal((await refused.status).code, status.UNAVAILABLE);
  rig.put(first, stranger.ca);
  await rig.look();
  const { watch } = connectApi(t, rig.server, mine);
  t.strictSame(await watch().ask('n'), ['R', 'Y']);
});
