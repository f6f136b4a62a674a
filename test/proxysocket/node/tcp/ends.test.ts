import { once } from 'node:events';
import { connect } from 'node:net';
import t from 'tap';
import { olderThan, whenFin, resetSocket } from '../../../../src/proxysocket/node/tcp/relay.ts';
import { openDescriptors, settledDescriptors } from '../../../support/sockets.ts';
import { endOf, tcpClient, tcpServer } from '../../../support/tcp-peers.ts';
import { until } from '../../../support/until.ts';

t.test('whenFin: a reset that looks like a FIN', async (t) => {
  t.equal(olderThan('1.51.0', 1, 52), true);
  t.equal(olderThan('1.52.0', 1, 52), false);
  t.equal(olderThan('2.0.1', 1, 52), false);

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

  t.test('one that is still connecting is dropped', async (t) => {
    const server = await tcpServer(t);
    const socket = connect({ host: '127.0.0.1', port: server.port });
    socket.on('error', () => undefined);
    resetSocket(socket);
    t.ok(socket.destroyed);
    await once(socket, 'close');
  });

  t.test('one that is closed is left alone', async (t) => {
    const server = await tcpServer(t);
    const socket = await tcpClient(t, server.port);
    socket.destroy();
    await once(socket, 'close');
    resetSocket(socket);
    t.equal(socket.errored, null);
  });
});
