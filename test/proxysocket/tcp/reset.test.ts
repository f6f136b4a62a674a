import { once } from 'node:events';
import type { Socket } from 'node:net';
import t from 'tap';
import {
  connectFailed,
  endpointPicked,
  rejected,
  relayEnded,
  relayStarted,
} from '../../../src/proxysocket/events.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { collect, openDescriptors, settledDescriptors } from '../../support/sockets.ts';
import {
  blackHole,
  connectionEnd,
  echoServer,
  endOf,
  namedServer,
  readAll,
  tcpClient,
  tcpServer,
} from '../../support/tcp-peers.ts';
import { HOUR, relayed, TcpRig } from '../../support/tcp-rig.ts';
import { until } from '../../support/until.ts';

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

t.test('the client and what it sends meanwhile go to the next endpoint', async (t) => {
  const clock = new FakeClock();
  const rig = new TcpRig(t, { clock });
  const [picked, failed] = [collect(t, endpointPicked), collect(t, connectFailed)];
  const ended = collect(t, relayEnded);
  const bad = await tcpServer(t);
  const hole = await blackHole(t);
  const good = await echoServer(t);
  const port = await rig.serve([bad.endpoint, hole, good.endpoint]);
  const client = await tcpClient(t, port);
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
  t.ok((await readAll(client)).equals(data));
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
    return readAll(endpoint);
  },
};

for (const [what, happens] of Object.entries(TOO_LATE)) {
  t.test(`after ${what} a reset is passed on`, async (t) => {
    const clock = new FakeClock();
    const { rig, server, client, socket } = await relayed(t, { clock });
    const other = await namedServer(t, 'other');
    await until(() => rig.counters.active === 1);
    await happens(client, socket, clock);
    await rig.endpoints([server.endpoint, other.endpoint]);
    const end = endOf(client);
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
  const servers = [await tcpServer(t, reset), await tcpServer(t, reset)];
  const port = await rig.serve(servers.map(({ endpoint }) => endpoint));
  const before = await settledDescriptors();
  t.equal(await connectionEnd(t, port), 'ECONNRESET');
  await until(() => openDescriptors() <= before);
  t.match(events, [{ reason: 'connect-failed', remoteAddress: /^127\.0\.0\.1:\d+$/ }]);
  t.equal(rig.counters.connectErrors.reset, 2);
  t.equal(rig.counters.rejectedConnectFailed, 1);
  t.equal(rig.counters.active, 0);
  t.same(
    ended.map(({ endpoint }) => endpoint),
    started.map(({ endpoint }) => endpoint),
    'each relay that began has ended once',
  );
  await rig.engine.close();
});

for (const how of ['the engine is destroyed', 'the endpoints are removed'] as const) {
  t.test(`${how} while another endpoint is dialed`, async (t) => {
    // A client that has had an endpoint is not held.
    const rig = new TcpRig(t, { clock: new FakeClock(), limits: { holdTimeoutMs: HOUR } });
    const picked = collect(t, endpointPicked);
    const ended = collect(t, relayEnded);
    const bad = await tcpServer(t);
    const port = await rig.serve([bad.endpoint, await blackHole(t)]);
    const client = await tcpClient(t, port);
    const socket = await bad.next();
    await until(() => rig.counters.active === 1);
    socket.resetAndDestroy();
    await until(() => picked.length === 2);
    const end = endOf(client);
    await (how === 'the engine is destroyed' ? rig.engine.destroy() : rig.endpoints([]));
    t.equal(await end, 'ECONNRESET');
    t.equal(ended.length, 1);
    await rig.engine.close();
  });
}
