import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import t from 'tap';
import { relayEnded } from '../../../src/proxysocket/events.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { endOf, readAll } from '../../support/tcp-peers.ts';
import { ENGINE } from '../../support/engine-under-test.ts';
import { relayed, echo, HOUR } from '../../support/tcp-rig.ts';
import { until } from '../../support/until.ts';
import { collect } from '../../support/sockets.ts';

t.test('a large upload to a slow endpoint that has sent its FIN long ago', async (t) => {
  const data = randomBytes(16 * 1024 * 1024);
  const chunks: Buffer[] = [];
  const { rig, client, socket } = await relayed(t, {}, (socket) => {
    socket.end();
    socket.on('data', (chunk: Buffer) => {
      chunks.push(chunk);
      socket.pause();
      setImmediate(() => setImmediate(() => socket.resume()));
    });
  });
  await readAll(client);
  client.end(data);
  await once(socket, 'end');
  t.ok(Buffer.concat(chunks).equals(data));
  await until(() => rig.counters.active === 0);
});

t.test('the second half may not stay silent forever', async (t) => {
  const ended = collect(t, relayEnded);
  const { rig, client, socket } = await relayed(t, { limits: { halfCloseTimeoutMs: 200 } });
  client.end();
  t.equal(await endOf(client), 'ECONNRESET');
  let error: Error | undefined;
  socket.once('error', (reason) => {
    error = reason;
  });
  // A socket that has had a FIN learns of the reset when it writes, if the reset is there by then.
  await until(() => {
    if (error === undefined) socket.write('anybody?');
    return error !== undefined;
  });
  t.match(error, { code: /EPIPE|ECONNRESET/ });
  await until(() => rig.counters.active === 0);
  t.equal(rig.counters.halfCloseTimeouts, 1);
  t.match(ended, [{ reason: 'half-close-timeout' }]);
});

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
});

t.test('a reader that is slow, but reads, gets everything', async (t) => {
  const size = 56 * 1024 * 1024;
  const limits = { halfCloseTimeoutMs: 1000 };
  // Closed, not ended: Wine loses what is on its way when a connection whose peer has ended is shut down.
  const { client } = await relayed(t, { limits }, (socket) => {
    socket.write(Buffer.alloc(size), () => socket.destroy());
  });
  client.end();
  let got = 0;
  let steps = 0;
  client.on('data', (chunk: Buffer) => {
    got += chunk.length;
    // Slow at first, for twice the limit; then the rest. In large steps: the kernel of the relay takes
    // new data only when a third of its buffer is empty, and of less no one can know.
    if (steps === 20 || got < (steps + 1) * 2 * 1024 * 1024) return;
    steps += 1;
    client.pause();
    setTimeout(() => client.resume(), 100);
  });
  await once(client, 'end');
  t.equal(got, size);
  t.equal(steps, 20);
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
