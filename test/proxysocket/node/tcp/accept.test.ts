import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import t from 'tap';
import {
  acceptWithOnread,
  canAcceptWithOnread,
} from '../../../../src/proxysocket/node/tcp/accept.ts';
import { resetSocket, whenFin } from '../../../../src/proxysocket/node/tcp/side.ts';
import { openDescriptors, settledDescriptors } from '../../../support/sockets.ts';
import { endOf, request, tcpClient, tcpServer } from '../../../support/tcp-peers.ts';
import { tcpScene } from '../../../support/tcp-rig.ts';
import { until } from '../../../support/until.ts';

t.test('whenFin: a reset that looks like a FIN', async (t) => {
  const server = await tcpServer(t);
  const client = await tcpClient(t, server.port);
  const socket = await server.next();
  let fins = 0;
  const fin = (): void => {
    fins += 1;
  };
  whenFin(client, fin, false);
  t.equal(fins, 1, 'without doubt it is one');
  whenFin(client, fin, true);
  await until(() => fins === 2);

  client.pause();
  socket.resetAndDestroy();
  await until(() => socket.closed);
  whenFin(client, fin, true);
  t.match((await once(client, 'error'))[0], { code: 'ECONNRESET' });
  t.equal(fins, 2);

  const other = await tcpClient(t, server.port);
  other.end();
  await until(() => other.writableFinished);
  whenFin(other, fin, true);
  t.equal(fins, 3, 'nothing can be written to find out');
});

t.test('resetSocket', async (t) => {
  t.test('a socket whose shutdown is on its way is reset, and its descriptor freed', async (t) => {
    const server = await tcpServer(t);
    const before = await settledDescriptors();
    const client = await tcpClient(t, server.port);
    const socket = await server.next();
    const closed = once(socket, 'close');
    const end = endOf(client);
    socket.end();
    // Now `resetAndDestroy` would fail with EINVAL and lose the descriptor.
    resetSocket(socket);
    await closed;
    t.match(await end, /FIN|ECONNRESET/, 'the FIN may overtake the reset');
    client.destroy();
    await until(() => openDescriptors() === before);
  });

  t.test('with data still to be written it is reset at once', async (t) => {
    const server = await tcpServer(t);
    const client = await tcpClient(t, server.port);
    const socket = await server.next();
    client.pause();
    // Windows takes one write whole, however much it is, and lets the next one wait.
    socket.write(Buffer.alloc(32 * 1024 * 1024));
    socket.end('more');
    t.ok(socket.writableLength > 0);
    resetSocket(socket);
    t.ok(socket.destroyed);
    client.resume();
    t.match((await once(client, 'error'))[0], { code: 'ECONNRESET' });
  });
});

t.test('this Node accepts sockets that read into buffers of ours', async (t) => {
  t.equal(await canAcceptWithOnread(), true);
});

t.test('otherwise nothing is changed', async (t) => {
  const server = createServer();
  const accepted = (): void => undefined;
  t.equal(acceptWithOnread(server, 1000, accepted), false, 'it does not listen: no handle');
  const strange = Object.assign(createServer(), { _handle: { setNoDelay: () => 0 } });
  t.equal(acceptWithOnread(strange, 1000, accepted), false);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.equal(acceptWithOnread(server, 1000, accepted), true);
  server.close();
});

const BUSY = 256;
const NEW = 64;

/** Asks again as soon as it is answered. */
function keepBusy(socket: Socket, onAnswer: () => void): void {
  socket.on('data', () => {
    onAnswer();
    socket.write('again');
  });
  socket.write('first');
}

// Proxy, clients and endpoint share one thread, so the count is that of turns of its loop.
t.test('new clients are accepted however many others are busy', async (t) => {
  const { rig, port } = await tcpScene(t);
  let answers = 0;
  const busy = await Promise.all(Array.from({ length: BUSY }, () => tcpClient(t, port)));
  await until(() => rig.counters.active === BUSY);
  for (const socket of busy) keepBusy(socket, () => (answers += 1));
  await until(() => answers > 10 * BUSY);

  const before = answers;
  const fresh = Array.from({ length: NEW }, () => request(t, port, 'hello'));
  await until(() => rig.counters.connections === BUSY + NEW);
  const meanwhile = answers - before;
  // One accepted in each turn that serves all others would be 64 turns, with 64 answers in each.
  t.ok(meanwhile < 6 * BUSY, `${meanwhile} answers to ${BUSY} others meanwhile`);
  t.same(new Set(await Promise.all(fresh)), new Set(['hello']));
  const after = answers;
  await until(() => answers > after + 10 * BUSY);
  for (const socket of busy) socket.destroy();
  await until(() => rig.counters.active === 0);
});
