import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import t from 'tap';
import { relayEnded } from '../../../src/proxysocket/events.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { endOf, readAll, tcpClient, tcpServer } from '../../support/tcp-peers.ts';
import { ENGINE } from '../../support/engine-under-test.ts';
import { relayed, echo, HOUR, tcpScene } from '../../support/tcp-rig.ts';
import { until } from '../../support/until.ts';
import { collect } from '../../support/sockets.ts';

for (const side of ['client', 'endpoint']) {
  t.test(`${side}s that take none of the rest are not waited for`, async (t) => {
    // Far more than the kernel keeps, and then the FIN: both halves have ended, but not arrived.
    const rest = Buffer.alloc(64 * 1024 * 1024);
    const limits = { halfCloseTimeoutMs: 300 };
    const { rig, client } = await relayed(t, { limits }, (socket) => {
      socket.end(side === 'client' ? rest : '');
    });
    if (side === 'client') client.end().pause();
    else client.resume().end(rest);
    await until(() => rig.counters.active === 0 && rig.counters.halfCloseTimeouts === 1);
  });
}

t.test('traffic in the second half keeps it open, and there is no limit before', async (t) => {
  const clock = new FakeClock();
  const ended = collect(t, relayEnded);
  const { rig, client, socket } = await relayed(t, { clock }, echo);
  await until(() => rig.counters.active === 1);
  clock.advance(10 * HOUR);
  client.write('still there');
  await once(client, 'data');
  socket.unpipe();
  client.end();
  client.resume();
  await readAll(socket);
  for (let bytes = 1; bytes <= 3; bytes += 1) {
    socket.write('.');
    await until(() => rig.counters.bytesOut === 'still there'.length + bytes);
    clock.advance(45_000);
  }
  t.equal(rig.counters.active, 1);
  clock.advance(60_000);
  t.equal(await endOf(client), 'ECONNRESET');
  await until(() => ended.length === 1);
  t.match(ended, [{ reason: 'half-close-timeout' }]);
});

t.test('half-closed connections get the new limit, old ones at their next check', async (t) => {
  const server = await tcpServer(t, (socket) => socket.resume().write('hello'));
  const { rig, port } = await tcpScene(t, { server, limits: { halfCloseTimeoutMs: 8000 } });
  const [before, after] = [await tcpClient(t, port), await tcpClient(t, port)];
  await Promise.all([once(before, 'data'), once(after, 'data')]);
  before.end();
  await until(() => server.sockets.some((socket) => socket.readableEnded));
  await rig.engine.setLimits({ halfCloseTimeoutMs: 200 });
  after.end();
  t.equal(await endOf(after), 'ECONNRESET');
  await until(() => rig.counters.halfCloseTimeouts === 1);
  t.equal(await endOf(before), 'ECONNRESET');
  await until(() => rig.counters.halfCloseTimeouts === 2);
});

// The linux engine has a thread of its own, which nothing here holds up.
if (ENGINE === 'node') {
  t.test('time in which the event loop was blocked does not count as idle', async (t) => {
    const { rig, client, socket } = await relayed(t, { limits: { halfCloseTimeoutMs: 400 } });
    const answer = readAll(client);
    client.end();
    await readAll(socket);
    // Each time the loop stands still for longer than the limit, and then has a moment.
    for (let index = 0; index < 3; index += 1) {
      await until(() => rig.counters.active === 1);
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 450);
      await delay(20);
    }
    socket.end('late');
    t.equal(String(await answer), 'late');
    t.equal(rig.counters.halfCloseTimeouts, 0);
  });
}
