import { once } from 'node:events';
import { connect } from 'node:net';
import t from 'tap';
import { relayEnded } from '../../../src/proxysocket/events.ts';
import { olderThan, whenFin } from '../../../src/proxysocket/tcp/fin.ts';
import { resetSocket } from '../../../src/proxysocket/tcp/reset.ts';
import { echoServer, endOf, readAll, tcpClient, tcpServer } from '../../support/tcp-peers.ts';
import { TcpRig, WAYS } from '../../support/tcp-rig.ts';
import { until } from '../../support/until.ts';
import { collect, openDescriptors, settledDescriptors } from '../../support/sockets.ts';

for (const { way, documentedOnly } of WAYS) {
  t.test(`${way}: the reset of a client reaches the endpoint as a reset`, async (t) => {
    const rig = new TcpRig(t, { documentedOnly });
    const ended = collect(t, relayEnded);
    const server = await tcpServer(t);
    const client = await tcpClient(t, await rig.serve([server.endpoint]));
    const end = endOf(await server.next());
    await until(() => rig.counters.active === 1);
    client.resetAndDestroy();
    t.equal(await end, 'ECONNRESET');
    await until(() => rig.counters.active === 0);
    t.match(ended, [{ reason: 'client-reset' }]);
  });

  t.test(`${way}: the reset of an endpoint reaches the client as a reset`, async (t) => {
    const rig = new TcpRig(t, { documentedOnly });
    const ended = collect(t, relayEnded);
    const server = await tcpServer(t);
    const client = await tcpClient(t, await rig.serve([server.endpoint]));
    const end = endOf(client);
    await until(() => rig.counters.active === 1);
    (await server.next()).resetAndDestroy();
    t.equal(await end, 'ECONNRESET');
    await until(() => rig.counters.active === 0);
    t.match(ended, [{ reason: 'endpoint-reset' }]);
  });

  t.test(`${way}: a reset in the middle of data both ways`, async (t) => {
    const rig = new TcpRig(t, { documentedOnly });
    const server = await echoServer(t);
    const client = await tcpClient(t, await rig.serve([server.endpoint]));
    const socket = await server.next();
    client.write(Buffer.alloc(8 * 1024 * 1024));
    await once(client, 'data');
    const end = endOf(client);
    socket.resetAndDestroy();
    t.equal(await end, 'ECONNRESET');
    await until(() => rig.counters.active === 0);
  });

  t.test(`${way}: a reset behind data is a reset, not the end of the data`, async (t) => {
    const rig = new TcpRig(t, { documentedOnly });
    const ended = collect(t, relayEnded);
    const server = await tcpServer(t);
    for (let size = 1; size < 3_000_000; size *= 7) {
      const client = await tcpClient(t, await rig.serve([server.endpoint]));
      const socket = await server.next();
      await until(() => rig.counters.active === 1);
      const { promise, resolve } = Promise.withResolvers<string>();
      client.on('end', () => resolve('FIN'));
      client.on('error', () => resolve('reset'));
      client.on('data', () => undefined);
      socket.write(Buffer.alloc(size));
      socket.resetAndDestroy();
      await promise;
      await until(() => rig.counters.active === 0);
    }
    // What the client saw depends on its own version of Node; what the relay saw must not.
    t.same(new Set(ended.map(({ reason }) => reason)), new Set(['endpoint-reset']));
  });

  t.test(`${way}: a reset after a FIN is still passed on`, async (t) => {
    const rig = new TcpRig(t, { documentedOnly });
    const server = await tcpServer(t);
    const client = await tcpClient(t, await rig.serve([server.endpoint]));
    const socket = await server.next();
    const end = endOf(client);
    client.end('question');
    await readAll(socket);
    socket.resetAndDestroy();
    t.equal(await end, 'ECONNRESET');
  });

  t.test(`${way}: destroying the engine resets both sides`, async (t) => {
    const rig = new TcpRig(t, { documentedOnly });
    const ended = collect(t, relayEnded);
    const server = await tcpServer(t);
    const client = await tcpClient(t, await rig.serve([server.endpoint]));
    const ends = [endOf(client), endOf(await server.next())];
    await until(() => rig.counters.active === 1);
    await rig.engine.destroy();
    t.same(await Promise.all(ends), ['ECONNRESET', 'ECONNRESET']);
    t.match(ended, [{ reason: 'destroyed' }]);
  });
}

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
