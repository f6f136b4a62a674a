import t, { type Test } from 'tap';
import { ServerCredentials } from '@grpc/grpc-js';
import { readFile } from 'node:fs/promises';
import { createServer as createHttp2Server } from 'node:http2';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { join } from 'node:path';
import { parseTarget } from '../../src/client/target.ts';
import { readTls } from '../../src/util/tls-files.ts';
import { framed } from '../support/api-rig.ts';
import { makeAuthority } from '../support/certs.ts';
import { startClientRig, type ClientRig, startKpngServer } from '../support/kpng-server.ts';
import { reset, service, setService, sync } from '../support/messages.ts';
import { until } from '../support/until.ts';

const web = setService(service('demo/web'));

/** Reads a key and a certificate for grpc-js's server. */
async function keyPair({ key, crt }: { key: string; crt: string }) {
  return { private_key: await readFile(key), cert_chain: await readFile(crt) };
}

/** One diff goes through. */
async function works({ server, sink }: ClientRig): Promise<string[]> {
  await server.answer(reset, web, sync);
  return (await sink.next()).shape;
}

t.test('over a unix socket', async (t) => {
  const path = join(t.testdir(), 'k.sock');
  const rig = await startClientRig(t, { server: { address: `unix:${path}` } });
  t.strictSame(await works(rig), ['demo/web()']);
});

t.test('a proxy in the environment is not used', async (t) => {
  // No one listens there.
  const names = ['http_proxy', 'https_proxy', 'grpc_proxy', 'all_proxy'];
  for (const name of names) process.env[name] = 'http://127.0.0.1:1';
  t.teardown(() => names.forEach((name) => delete process.env[name]));
  t.strictSame(await works(await startClientRig(t)), ['demo/web()']);
});

t.test('messages up to the limit are accepted, larger ones reported', async (t) => {
  const rig = await startClientRig(t, { maxMessageSize: 10_000 });
  const large = (size: number) =>
    setService(service('demo/large', { annotations: { a: 'x'.repeat(size) } }));
  const stream = await rig.server.answer(reset, web, large(9_500), sync);
  const { shape, view } = await rig.sink.next();
  t.strictSame(shape, ['demo/large()', 'demo/web()']);
  await stream.answer(large(10_000), sync);
  t.match((await rig.errors.take()).message, /RESOURCE_EXHAUSTED.*--max-msg-size is 10000/s);
  t.equal(view.size, 2, 'the state stays');
  t.equal(rig.sink.unread, 0);
});

/** A TCP server that says nothing. */
async function mute(t: Test) {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket
      .on('error', () => {})
      .on('close', () => sockets.delete(socket))
      .resume();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { target: parseTarget(`127.0.0.1:${(server.address() as AddressInfo).port}`), sockets };
}

t.test('a message in a compression without a name is reported', async (t) => {
  const server = createHttp2Server((_, response) => {
    response.writeHead(200, { 'content-type': 'application/grpc' });
    response.write(framed(new Uint8Array(3), 1));
  });
  t.teardown(() => server.close());
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const target = parseTarget(`127.0.0.1:${(server.address() as AddressInfo).port}`);
  const { errors } = await startClientRig(t, { target });
  t.match((await errors.take()).message, /INTERNAL: unsupported compression of a message$/);
});

t.test('TLS', async (t) => {
  const authority = await makeAuthority(t);
  const other = await makeAuthority(t, 'other');
  const serverPair = await keyPair(await authority.issue('server'));
  const roots = await readFile(authority.ca);
  const { ca } = authority;
  const server = { credentials: ServerCredentials.createSsl(null, [serverPair], false) };

  t.test('TLS files that are replaced count from the next connection on', async (t) => {
    let files = other.ca;
    const rig = await startClientRig(t, {
      server,
      tls: await readTls({ ca: other.ca }),
      renewTls: () => readTls({ ca: files }),
    });
    t.match((await rig.errors.take()).message, /UNAVAILABLE.*(issuer|signature|verify)/s);
    t.equal(rig.server.unread, 0);
    files = `${ca}.not-there`;
    await rig.retryAfter(1000);
    t.match(
      (await rig.errors.take()).message,
      /UNAVAILABLE.*; the previous TLS files are used: .*not-there: cannot be read \(ENOENT\)/s,
    );
    files = ca;
    await rig.retryAfter(1600);
    t.strictSame(await works(rig), ['demo/web()']);
  });

  t.test('mTLS: with a certificate there is a stream; with a stranger’s, none', async (t) => {
    const mutual = { credentials: ServerCredentials.createSsl(roots, [serverPair], true) };
    const tls = await readTls({ ...(await authority.issue('client')), ca });
    t.strictSame(await works(await startClientRig(t, { server: mutual, tls })), ['demo/web()']);
    const refused = await readTls({ ...(await other.issue('client')), ca });
    const rig = await startClientRig(t, { server: mutual, tls: refused });
    t.match((await rig.errors.take()).message, /UNAVAILABLE|certificate/);
    t.equal(rig.server.unread, 0);
  });

  t.test('a server that stays silent is abandoned, with TLS or without, and retried', async (t) => {
    for (const tls of [undefined, await readTls({ ca })]) {
      const { target, sockets } = await mute(t);
      const rig = await startClientRig(t, { target, tls });
      await until(() => sockets.size === 1);
      await rig.retryAfter(20_000);
      t.match((await rig.errors.take()).message, /No answer within 20 s/);
      await until(() => sockets.size === 0);
      await rig.retryAfter(1000);
      await until(() => sockets.size === 1);
    }
  });

  t.test('the certificate has to be for the name or address that is dialled', async (t) => {
    const tls = await readTls({ ca });
    const named = await startKpngServer(server);
    t.teardown(() => named.stop());
    const target = parseTarget(`localhost:${named.port}`);
    const rig = await startClientRig(t, { tls, target });
    t.strictSame(await works({ ...rig, server: named }), ['demo/web()']);

    const pair = await keyPair(await authority.issue('elsewhere', 'DNS:elsewhere,IP:10.0.0.1'));
    const credentials = ServerCredentials.createSsl(null, [pair], false);
    const stranger = await startClientRig(t, { tls, server: { credentials } });
    t.match((await stranger.errors.take()).message, /UNAVAILABLE.*altnames/s);
    t.equal(stranger.server.unread, 0);
  });

  t.test('plaintext to a TLS server, and TLS to a plaintext server, say so', async (t) => {
    for (const [options, message] of [
      [{ server }, /: the server closed the connection \(it may be a server with TLS.*-ca\)$/],
      [{ tls: await readTls({ ca }) }, /: wrong version number \(it may be a server without TLS/],
    ] as const) {
      t.match((await (await startClientRig(t, options)).errors.take()).message, message);
    }
  });
});
