import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import type { Test } from 'tap';
import { EAGAIN, ECONNREFUSED } from '../../src/proxysocket/linux/sys/abi.ts';
import { MAX_DESCRIPTORS, Rights } from '../../src/handover/rights.ts';
import { library, linuxTest } from '../support/linux-sys.ts';
import { shortDir } from '../support/short-dir.ts';
import { openDescriptors } from '../support/sockets.ts';

/** Two ends of a unix socket, as descriptors. */
async function pair(t: Test, rights: Rights): Promise<{ here: number; there: number }> {
  const path = join(shortDir(t), 'socket');
  const server = createServer({ pauseOnConnect: true }).listen(path);
  await once(server, 'listening');
  const here = rights.connect(path);
  const [socket] = (await once(server, 'connection')) as [Socket];
  server.close();
  t.teardown(() => {
    rights.close(here);
    socket.destroy();
  });
  const { fd } = (socket as unknown as { _handle: { fd: number } })._handle;
  return { here, there: fd };
}

linuxTest('bytes and descriptors arrive in order', async (t) => {
  const rights = new Rights(library());
  const { here, there } = await pair(t, rights);
  t.equal(rights.receive(here), -EAGAIN);
  const files = Array.from({ length: MAX_DESCRIPTORS }, () => openSync('/dev/null', 'r'));
  t.equal(rights.send(there, Buffer.from('first'), files), 5);
  t.equal(rights.send(there, Buffer.from('second'), files.slice(0, 1)), 6);
  const before = openDescriptors();
  const first = rights.receive(here);
  if (typeof first === 'number') throw new Error(`receive: ${first}`);
  t.equal(Buffer.from(first.bytes).toString(), 'first');
  t.equal(new Set(first.descriptors).size, MAX_DESCRIPTORS);
  t.equal(openDescriptors(), before + MAX_DESCRIPTORS, 'they are open here');
  const second = rights.receive(here);
  if (typeof second === 'number') throw new Error(`receive: ${second}`);
  t.match([Buffer.from(second.bytes).toString(), second.descriptors.length], ['second', 1]);
  for (const fd of [...files, ...first.descriptors, ...second.descriptors]) closeSync(fd);
});

linuxTest('without descriptors none come, and the end of the stream has no bytes', async (t) => {
  const rights = new Rights(library());
  const { here, there } = await pair(t, rights);
  rights.send(here, Buffer.from('words'));
  t.match(rights.receive(there), { descriptors: [] });
  t.same(rights.peer(there), { pid: process.pid, uid: process.getuid?.() });
  const other = openSync('/dev/null', 'r');
  t.equal(rights.peer(other), undefined);
  closeSync(other);
});

linuxTest('a path without a listener, and one that is too long', async (t) => {
  const rights = new Rights(library());
  const path = join(shortDir(t), 'socket');
  t.ok(rights.connect(path) < 0);
  const server = createServer().listen(path);
  await once(server, 'listening');
  server.close();
  t.ok([-ECONNREFUSED, -2].includes(rights.connect(path)));
  t.throws(() => rights.connect('x'.repeat(108)), RangeError);
});

linuxTest('distinguishes listening sockets from everything else', async (t) => {
  const rights = new Rights(library());
  const fdOf = (holder: unknown): number => (holder as { _handle: { fd: number } })._handle.fd;
  const server = createServer((socket) => socket.destroy()).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  const { port } = server.address() as { port: number };
  const tcp = { protocol: 'TCP', address: '127.0.0.1', port } as const;
  t.same(rights.listeningAddress(fdOf(server)), tcp);

  const client = connect(port, '127.0.0.1');
  await once(client, 'connect');
  t.equal(rights.listeningAddress(fdOf(client)), undefined, 'a connection');
  client.destroy();

  const { _handle: handle } = await (async () => {
    const udp = createSocket('udp6').bind(0, '::1');
    await once(udp, 'listening');
    t.teardown(() => udp.close());
    const symbol = Object.getOwnPropertySymbols(udp).find((each) => /state/.test(String(each)));
    const state = (udp as unknown as Record<symbol, { handle: { fd: number } }>)[
      symbol ?? Symbol()
    ];
    return { _handle: { fd: state?.handle.fd ?? -1, port: udp.address().port } };
  })();
  const place = { protocol: 'UDP', address: '::1', port: handle.port };
  t.same(rights.listeningAddress(handle.fd), place);
  const file = openSync('/dev/null', 'r');
  t.equal(rights.listeningAddress(file), undefined, 'no socket at all');
  closeSync(file);
  t.equal(rights.listeningAddress(-1), undefined);
});
