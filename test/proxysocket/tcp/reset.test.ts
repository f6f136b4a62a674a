import t from 'tap';
import { relayEnded } from '../../../src/proxysocket/events.ts';
import { endOf, tcpClient, tcpServer } from '../../support/tcp-peers.ts';
import { TcpRig, relayed } from '../../support/tcp-rig.ts';
import { until } from '../../support/until.ts';
import { collect } from '../../support/sockets.ts';

for (const from of ['client', 'endpoint'] as const) {
  t.test(`the reset of a ${from} reaches the other side as a reset`, async (t) => {
    const ended = collect(t, relayEnded);
    const { rig, client, socket: endpoint } = await relayed(t);
    const end = endOf(from === 'client' ? endpoint : client);
    await until(() => rig.counters.active === 1);
    (from === 'client' ? client : endpoint).resetAndDestroy();
    t.equal(await end, 'ECONNRESET');
    await until(() => rig.counters.active === 0);
    t.match(ended, [{ reason: `${from}-reset` }]);
  });
}

t.test('a reset behind data is a reset, not the end of the data', async (t) => {
  const rig = new TcpRig(t);
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

t.test('destroying the engine resets both sides', async (t) => {
  const ended = collect(t, relayEnded);
  const { rig, client, socket } = await relayed(t);
  const ends = [endOf(client), endOf(socket)];
  await until(() => rig.counters.active === 1);
  await rig.engine.destroy();
  t.same(await Promise.all(ends), ['ECONNRESET', 'ECONNRESET']);
  t.match(ended, [{ reason: 'destroyed' }]);
});
