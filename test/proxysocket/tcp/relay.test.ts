import { once } from 'node:events';
import type { Socket } from 'node:net';
import t from 'tap';
import {
  connectFailed,
  endpointPicked,
  relayEnded,
  rejected,
  relayStarted,
} from '../../../src/proxysocket/events.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { collect, openDescriptors, settledDescriptors } from '../../support/sockets.ts';
import * as peers from '../../support/tcp-peers.ts';
import { TcpRig, tcpScene, relayed, echo, HOUR } from '../../support/tcp-rig.ts';
import { until } from '../../support/until.ts';

/** Vectors of kube-proxy's userspace mode, kept or deliberately different. */

t.test('T4 (kept): the second endpoint serves, and the affinity goes to it', async (t) => {
  const rig = new TcpRig(t, { clock: new FakeClock() });
  const [picked, failed] = [collect(t, endpointPicked), collect(t, connectFailed)];
  const [bad, good] = [await peers.refusingEndpoint(t), await peers.namedServer(t, 'good')];
  const affinity = { kind: 'clientIP', timeoutSeconds: 10_800 } as const;
  const next = await peers.namedServer(t, 'next');
  const port = await rig.serve([bad, good.endpoint, next.endpoint], { affinity });
  t.equal(await peers.request(t, port), 'good');
  t.match(failed, [{ attempt: 1, cause: 'refused', endpoint: `${bad.address}:${bad.port}` }]);
  t.match(rig.counters, { connections: 1, retries: 1, connectErrors: { refused: 1 } });
  const { counts, sum } = rig.counters.connectSeconds;
  t.strictSame([counts.reduce((all, each) => all + each), sum], [1, 0], 'the clock stands still');
  t.equal(await peers.request(t, port), 'good');
  t.match(picked[0], { attempt: 1, endpoints: 3, sticky: false, sourceAddress: /^127\.0\.0\.1:/ });
  t.match(picked.at(-1), { attempt: 1, sticky: true, endpoint: `127.0.0.1:${good.port}` });
  t.equal(await peers.request(t, port, '', { localAddress: '127.0.0.2' }), 'next');
});

// Only the tables of Linux report the attempts.
const skip = process.platform !== 'linux' && 'only on linux';
t.test('a client that leaves during the connect leaves nothing behind', { skip }, async (t) => {
  const clock = new FakeClock();
  const rig = new TcpRig(t, { clock });
  const picked = collect(t, endpointPicked);
  const hole = await peers.blackHole(t);
  const attempts = (): number =>
    peers.kernelSockets().filter(({ remotePort, state }) => remotePort === hole.port && state === 2)
      .length;
  const port = await rig.serve([hole]);
  for (const leave of ['resetAndDestroy', 'destroy', 'end'] as const) {
    const client = await peers.tcpClient(t, port);
    client[leave]();
  }
  await until(() => picked.length === 3);
  // Node does not report, so the attempts run on; but not longer than they may.
  for (const ms of [250, 500, 1000, 2000]) {
    await until(() => attempts() === 3);
    clock.advance(ms);
  }
  await until(() => attempts() === 0);
  t.equal(rig.counters.rejectedConnectFailed, 3);
});

t.test('answered attempts do not time out when the event loop pauses', async (t) => {
  const server = await peers.namedServer(t, 'there');
  const { rig, port } = await tcpScene(t, { server, limits: { connectTimeoutsMs: [100] } });
  let pauses = 0;
  const pause = (): void => {
    pauses += 1;
    // Once the attempt is with the kernel.
    setImmediate(() => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 150));
  };
  endpointPicked.subscribe(pause);
  t.teardown(() => endpointPicked.unsubscribe(pause));
  for (let index = 0; index < 5; index += 1) t.equal(await peers.request(t, port), 'there');
  t.equal(pauses, 5);
  t.equal(rig.counters.connectErrors.timeout, 0);
});

t.test('families cross when a service has endpoints of the other one only', async (t) => {
  const rig = new TcpRig(t);
  const [four, six] = [await peers.namedServer(t, '4'), await peers.namedServer(t, '6', '::1')];
  const listen = [{}, { address: '::1' }];
  const port = await rig.serve([four.endpoint, six.endpoint], { listen });
  const [address, port6] = ['::1', rig.port(undefined, 1)];
  t.equal(await peers.request(t, port), '4', 'its own family comes first');
  t.equal(await peers.request(t, port6, '', { address }), '6');
  await rig.endpoints([six.endpoint]);
  t.equal(await peers.request(t, port), '6');
  await rig.endpoints([four.endpoint]);
  t.equal(await peers.request(t, port6, '', { address }), '4');
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
  const ended = collect(t, relayEnded);
  const { rig, client, socket } = await relayed(t, { clock }, echo);
  await until(() => rig.counters.active === 1);
  clock.advance(10 * HOUR);
  client.write('still there');
  await once(client, 'data');
  socket.unpipe();
  client.end();
  client.resume();
  await peers.readAll(socket);
  for (let bytes = 1; bytes <= 3; bytes += 1) {
    socket.write('.');
    await until(() => rig.counters.bytesOut === 'still there'.length + bytes);
    clock.advance(45_000);
  }
  t.equal(rig.counters.active, 1);
  clock.advance(60_000);
  t.equal(await peers.endOf(client), 'ECONNRESET');
  await until(() => ended.length === 1);
  t.match(ended, [{ reason: 'half-close-timeout' }]);
});

t.test('half-closed connections get the new limit, old ones at their next check', async (t) => {
  const server = await peers.tcpServer(t, (socket) => socket.resume().write('hello'));
  const { rig, port } = await tcpScene(t, { server, limits: { halfCloseTimeoutMs: 8000 } });
  const [before, after] = [await peers.tcpClient(t, port), await peers.tcpClient(t, port)];
  await Promise.all([once(before, 'data'), once(after, 'data')]);
  before.end();
  await until(() => server.sockets.some((socket) => socket.readableEnded));
  await rig.engine.setLimits({ halfCloseTimeoutMs: 200 });
  after.end();
  t.equal(await peers.endOf(after), 'ECONNRESET');
  await until(() => rig.counters.halfCloseTimeouts >= 1);
  t.equal(await peers.endOf(before), 'ECONNRESET');
  await until(() => rig.counters.halfCloseTimeouts === 2);
});

for (const from of ['client', 'endpoint'] as const) {
  t.test(`the reset of a ${from} reaches the other side as a reset`, async (t) => {
    const ended = collect(t, relayEnded);
    const { rig, client, socket: endpoint } = await relayed(t);
    const end = peers.endOf(from === 'client' ? endpoint : client);
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
  const server = await peers.tcpServer(t);
  for (let size = 1; size < 3_000_000; size *= 7) {
    const client = await peers.tcpClient(t, await rig.serve([server.endpoint]));
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
  const ends = [peers.endOf(client), peers.endOf(socket)];
  await until(() => rig.counters.active === 1);
  await rig.engine.destroy();
  t.same(await Promise.all(ends), ['ECONNRESET', 'ECONNRESET']);
  t.match(ended, [{ reason: 'destroyed' }]);
});

t.test('the client and what it sends meanwhile go to the next endpoint', async (t) => {
  const clock = new FakeClock();
  const rig = new TcpRig(t, { clock });
  const [picked, failed] = [collect(t, endpointPicked), collect(t, connectFailed)];
  const ended = collect(t, relayEnded);
  const bad = await peers.tcpServer(t);
  const hole = await peers.blackHole(t);
  const good = await peers.echoServer(t);
  const port = await rig.serve([bad.endpoint, hole, good.endpoint]);
  const client = await peers.tcpClient(t, port);
  const first = await bad.next();
  await until(() => rig.counters.active === 1);
  first.resetAndDestroy();
  // The second attempt hangs, and the client continues.
  await until(() => picked.length === 2);
  t.equal(rig.counters.active, 0);
  t.match(failed, [{ attempt: 1, cause: 'reset', error: { code: 'ECONNRESET' } }]);
  t.match(ended, [{ reason: 'endpoint-reset', bytesIn: 0, bytesOut: 0 }]);
  const data = Buffer.alloc(3_000_000, 'abcdefg');
  client.end(data);
  await once(client, 'finish').catch(() => undefined);
  clock.advance(500);
  t.ok((await peers.readAll(client)).equals(data));
  t.match(rig.counters, { connections: 1, retries: 2, connectErrors: { reset: 1, timeout: 1 } });
  await until(() => rig.counters.active === 0);
  t.match(rig.counters, { bytesIn: data.length, bytesOut: data.length });
});

/** What may happen to a relay, after which the reset of its endpoint is for its client. */
const TOO_LATE: Readonly<
  Record<string, (client: Socket, endpoint: Socket, clock: FakeClock) => unknown>
> = {
  'a byte from the client'(client, endpoint) {
    client.write('x');
    return once(endpoint, 'data');
  },
  'a byte from the endpoint'(client, endpoint) {
    endpoint.write('x');
    return once(client, 'data');
  },
  'the time of the attempt': (_, __, clock) => clock.advance(251),
  'a FIN of the client'(client, endpoint) {
    client.end();
    return peers.readAll(endpoint);
  },
};

for (const [what, happens] of Object.entries(TOO_LATE)) {
  t.test(`after ${what} a reset is passed on`, async (t) => {
    const clock = new FakeClock();
    const { rig, server, client, socket } = await relayed(t, { clock });
    const other = await peers.namedServer(t, 'other');
    await until(() => rig.counters.active === 1);
    await happens(client, socket, clock);
    await rig.endpoints([server.endpoint, other.endpoint]);
    const end = peers.endOf(client);
    socket.resetAndDestroy();
    t.equal(await end, 'ECONNRESET');
    await until(() => rig.counters.active === 0);
    t.equal(other.sockets.length, 0);
    t.match(rig.counters, { retries: 0, connectErrors: { reset: 0 } });
  });
}

t.test('when all endpoints reset, so is the client, and nothing leaks', async (t) => {
  const rig = new TcpRig(t, { clock: new FakeClock() });
  const events = collect(t, rejected);
  const started = collect(t, relayStarted);
  const ended = collect(t, relayEnded);
  const reset = (socket: Socket): unknown => socket.resetAndDestroy();
  const servers = [await peers.tcpServer(t, reset), await peers.tcpServer(t, reset)];
  const port = await rig.serve(servers.map(({ endpoint }) => endpoint));
  const before = await settledDescriptors();
  t.equal(await peers.connectionEnd(t, port), 'ECONNRESET');
  await until(() => openDescriptors() <= before);
  t.match(events, [{ reason: 'connect-failed', remoteAddress: /^127\.0\.0\.1:\d+$/ }]);
  t.equal(rig.counters.connectErrors.reset, 2);
  t.equal(rig.counters.rejectedConnectFailed, 1);
  t.equal(rig.counters.active, 0);
  const [begun, over] = [started, ended].map((all) => all.map(({ endpoint }) => endpoint));
  t.same(over, begun, 'each relay that began has ended once');
  await rig.engine.close();
});
