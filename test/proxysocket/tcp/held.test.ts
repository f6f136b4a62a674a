/** TCP clients of a service port without endpoints, with a hold timeout. */
import { once } from 'node:events';
import type { Socket } from 'node:net';
import t, { type Test } from 'tap';
import { processDescriptorLimit } from '../../../src/proxysocket/core/descriptors.ts';
import { limitChanged, rejected, tcpHeld, tcpHoldEnded } from '../../../src/proxysocket/events.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { collect, settledDescriptors } from '../../support/sockets.ts';
import {
  blackHole,
  connectionEnd,
  echoServer,
  endOf,
  namedServer,
  readAll,
  refusingEndpoint,
  request,
  tcpClient,
} from '../../support/tcp-peers.ts';
import { held, heldClient, holding, HOUR, TcpRig, tcpSpec } from '../../support/tcp-rig.ts';
import { until } from '../../support/until.ts';

t.test('a client gets its answer when an endpoint comes, without a byte lost', async (t) => {
  const { rig, port } = await holding(t);
  const begun = collect(t, tcpHeld);
  const ended = collect(t, tcpHoldEnded);
  const [early, silent] = [await tcpClient(t, port), await tcpClient(t, port)];
  early.write('hello ');
  await held(rig, 2);
  early.write('there');
  const server = await echoServer(t);
  await rig.endpoints([server.endpoint]);
  let answer = '';
  early.on('data', (chunk) => (answer += String(chunk)));
  await until(() => answer === 'hello there');
  silent.write('me, too');
  t.equal(String((await once(silent, 'data'))[0]), 'me, too');
  early.end(' and bye');
  await once(early, 'end');
  t.equal(answer, 'hello there and bye');
  t.match(rig.counters, { held: 0, heldTotal: 2, connections: 2, rejectedNoEndpoint: 0 });
  t.equal(begun.length, 2);
  const remoteAddress = /^127\.0\.0\.1:\d+$/;
  t.match(begun[0], { servicePort: 'test/web:http', remoteAddress, waiting: 1 });
  t.match(ended, [
    { reason: 'endpoint', waiting: 1 },
    { reason: 'endpoint', waiting: 0 },
  ]);
});

t.test('more than is kept of a client, and its FIN, arrive whole and in order', async (t) => {
  const { rig, port } = await holding(t);
  const sizes = [1, 16 * 1024, 300_000, 5_000_000];
  const bodies = sizes.map((size) => Buffer.alloc(size, 'abcdefg'));
  const clients = await Promise.all(bodies.map(() => tcpClient(t, port)));
  for (const [index, client] of clients.entries()) client.end(bodies[index] ?? '');
  // When it has been seen that this one has gone, the ends of the others have been seen.
  const last = await tcpClient(t, port);
  await until(() => rig.counters.heldTotal === clients.length + 1);
  last.end();
  await held(rig, clients.length);
  const answers = Promise.all(clients.map(readAll));
  await rig.endpoints([(await echoServer(t)).endpoint]);
  for (const [index, answer] of (await answers).entries())
    t.ok(answer.equals(bodies[index] ?? answer), `${sizes[index]} bytes`);
  await until(() => rig.counters.active === 0);
  t.equal(
    rig.counters.bytesIn,
    sizes.reduce((sum, size) => sum + size, 0),
  );
});

t.test('a client that leaves is released at once, however it leaves', async (t) => {
  const { rig, port } = await holding(t);
  const ended = collect(t, tcpHoldEnded);
  const before = await settledDescriptors();
  const clients = await Promise.all(Array.from({ length: 4 }, () => tcpClient(t, port)));
  const [fin, reset, resetAfterData, half] = clients;
  resetAfterData?.write('something');
  await held(rig, 4);
  fin?.destroy();
  await held(rig, 3);
  reset?.resetAndDestroy();
  await held(rig, 2);
  resetAfterData?.resetAndDestroy();
  await held(rig, 1);
  half?.end();
  await held(rig, 0);
  t.equal(await endOf(half as never), 'ECONNRESET', 'it can be waiting for nothing');
  t.same(new Set(ended.map(({ reason }) => reason)), new Set(['client-gone']));
  t.match(rig.counters, { rejectedNoEndpoint: 0, rejectedHoldTimeout: 0, active: 0 });
  await until(() => true);
  t.equal(await settledDescriptors(), before, 'no descriptor is left');
});

t.test('a client that is held again after its endpoint has gone loses nothing', async (t) => {
  const { rig, port } = await holding(t);
  const client = await tcpClient(t, port);
  client.write('one ');
  await held(rig, 1);
  // It never answers, so the client is being connected until it is gone.
  await rig.endpoints([await blackHole(t)]);
  await until(() => rig.counters.held === 0);
  client.write('two');
  await rig.endpoints([]);
  await held(rig, 1);
  await rig.endpoints([(await echoServer(t)).endpoint]);
  let answer = '';
  client.on('data', (chunk) => (answer += String(chunk)));
  await until(() => answer === 'one two');
  t.equal(rig.counters.heldTotal, 1, 'it is one client');
});

t.test('a client may end its half while its endpoint is being connected', async (t) => {
  const { rig, client } = await heldClient(t, { limits: { connectTimeoutsMs: [HOUR] } });
  await rig.endpoints([await blackHole(t)]);
  await until(() => rig.counters.held === 0);
  client.end();
  await once(client, 'finish');
  const other = await rig.serve([], { name: 'test/other' });
  // When the end of this one has been seen, that of the client has come, too.
  const last = await tcpClient(t, other);
  await until(() => rig.snapshot('test/other').counters.held === 1);
  last.end();
  await until(() => rig.snapshot('test/other').counters.held === 0);
  await rig.endpoints([(await echoServer(t)).endpoint]);
  t.equal(String(await readAll(client)), '', 'it ends with its endpoint');
});

t.test('only an endpoint for its traffic ends the wait of a client', async (t) => {
  const { rig, client } = await heldClient(t);
  const server = await namedServer(t, 'inside');
  await rig.endpoints([{ ...server.endpoint, internal: false }]);
  t.equal(rig.counters.held, 1);
  await rig.endpoints([server.endpoint]);
  t.equal(String(await readAll(client)), 'inside');
});

t.test('clients of a service port whose endpoints refuse are not held', async (t) => {
  const { rig } = await holding(t, { limits: { connectTimeoutsMs: [1000, 1000] } });
  const port = await rig.serve([await refusingEndpoint(t)]);
  t.equal(await connectionEnd(t, port), 'ECONNRESET');
  t.match(rig.counters, { rejectedConnectFailed: 1, heldTotal: 0 });
});

t.test('clients of drained endpoints are reset, those held before as well', async (t) => {
  const { rig, port } = await holding(t);
  const server = await echoServer(t);
  const closed = { internal: false, external: false, drained: ['internal'] } as const;
  const drained = { ...server.endpoint, ...closed };
  const client = await tcpClient(t, port);
  await held(rig, 1);
  await rig.endpoints([drained]);
  t.equal(await endOf(client), 'ECONNRESET');
  t.equal(await connectionEnd(t, port), 'ECONNRESET');
  t.match(rig.counters, { rejectedDrained: 2, held: 0, heldTotal: 1 });
});

t.test('many clients continue in batches, while there is an endpoint', async (t) => {
  const clock = new FakeClock();
  const { rig, port } = await holding(t, { clock });
  const clients = await Promise.all(Array.from({ length: 200 }, () => tcpClient(t, port)));
  await held(rig, 200);
  const { endpoint } = await namedServer(t, 'here');
  const answers = Promise.all(clients.map(readAll));
  await rig.endpoints([endpoint]);
  const left = rig.counters.held;
  t.ok(left > 100 && left < 200, 'others have their turn in between');
  await until(() => rig.counters.active === 200 - left);
  await rig.endpoints([{ ...endpoint, external: false }]);
  t.equal(rig.counters.held, left, 'another change brings them on no faster');
  await rig.endpoints([]);
  clock.advance(10);
  t.equal(rig.counters.held, left, 'the endpoint was gone before the next batch');
  await rig.endpoints([endpoint]);
  clock.advance(100);
  t.ok((await answers).every((answer) => String(answer) === 'here'));
  t.match(rig.counters, { held: 0, heldTotal: 200 });
});

for (const how of ['close', 'destroy'] as const) {
  t.test(`held clients are reset with their service port, and by ${how}`, async (t) => {
    const { rig, client } = await heldClient(t);
    const ended = collect(t, tcpHoldEnded);
    const last = await tcpClient(t, await rig.serve([], { name: 'test/other' }));
    await until(() => rig.snapshot('test/other').counters.held === 1);
    const ends = [endOf(client), endOf(last)];
    await rig.remove();
    t.equal(await ends[0], 'ECONNRESET');
    const closed = rig.engine[how]();
    t.equal(await ends[1], 'ECONNRESET');
    await closed;
    t.equal(ended[0]?.reason, 'service-gone');
    t.equal(ended[1]?.reason, how === 'close' ? 'service-gone' : 'destroyed');
  });
}

t.test('clients that connect while listeners close are not held', async (t) => {
  const { rig } = await holding(t);
  const names = Array.from({ length: 600 }, (_, index) => `test/web${index}`);
  await rig.engine.apply(names.map((name) => ({ kind: 'set', spec: tcpSpec([], { name }) })));
  const last = names.slice(-50).map((name) => rig.port(name));
  const closed = rig.engine.close();
  const ends = await Promise.all(last.map((port) => connectionEnd(t, port)));
  t.ok(ends.every((end) => end === 'ECONNRESET' || end === 'ECONNREFUSED'));
  await closed;
});

t.test('a client is reset after the hold timeout, and no earlier', async (t) => {
  const clock = new FakeClock();
  const { rig, port } = await holding(t, { clock, limits: { holdTimeoutMs: 5000 } });
  const ended = collect(t, tcpHoldEnded);
  const refused = collect(t, rejected);
  const first = await tcpClient(t, port);
  await held(rig, 1);
  clock.advance(3000);
  const client = `127.0.0.1:${first.localPort}`;
  const { connections } = (await rig.engine.inspect?.({ maxConnections: 10 })) ?? {};
  t.match(connections, [{ client, endpoint: '', state: 'held', ageMs: 3000 }]);
  const second = await tcpClient(t, port);
  await held(rig, 2);
  clock.advance(1999);
  t.equal(rig.counters.held, 2);
  clock.advance(1);
  t.equal(await endOf(first), 'ECONNRESET');
  await held(rig, 1);
  clock.advance(3000);
  t.equal(await endOf(second), 'ECONNRESET');
  await held(rig, 0);
  t.match(rig.counters, { rejectedHoldTimeout: 2, rejectedNoEndpoint: 0 });
  t.match(ended, [
    { reason: 'hold-timeout', durationMs: 5000 },
    { reason: 'hold-timeout', durationMs: 5000 },
  ]);
  t.match(refused, [{ reason: 'hold-timeout', protocol: 'TCP' }, { reason: 'hold-timeout' }]);
});

t.test('endpoints that come and go make a client wait twice the time at the most', async (t) => {
  const clock = new FakeClock();
  const { rig, port } = await holding(t, {
    clock,
    limits: { holdTimeoutMs: 5000, connectTimeoutsMs: [HOUR] },
  });
  const client = await tcpClient(t, port);
  await held(rig, 1);
  const silent = await blackHole(t);
  for (const ms of [4000, 999]) {
    clock.advance(ms);
    await rig.endpoints([silent]);
    await held(rig, 0);
    await rig.endpoints([]);
    await held(rig, 1);
  }
  clock.advance(4999);
  await rig.endpoints([silent]);
  await held(rig, 0);
  await rig.endpoints([]);
  await until(() => rig.counters.rejectedHoldTimeout === 1);
  t.equal(await endOf(client), 'ECONNRESET');
  t.match(rig.counters, { held: 0, heldTotal: 1 });
});

/** So many clients of a service port without endpoints; resolves when each is held or reset. */
async function clientsOf(t: Test, rig: TcpRig, count: number): Promise<Socket[]> {
  const port = await rig.serve([]);
  // A client that is reset may not even have seen that it was connected.
  const clients = await Promise.allSettled(Array.from({ length: count }, () => tcpClient(t, port)));
  await until(() => rig.counters.held + rig.counters.rejectedLimit === count);
  return clients.flatMap((each) => (each.status === 'fulfilled' ? each.value : []));
}

t.test('clients beyond the limit of held ones are reset; others are let in', async (t) => {
  const { rig } = await holding(t, { limits: { maxHeldConnections: 2 } });
  await clientsOf(t, rig, 6);
  t.match(rig.counters, { held: 2, rejectedLimit: 4 });
  const { endpoint } = await namedServer(t, 'served');
  const busy = await rig.serve([endpoint], { name: 'test/busy' });
  t.equal(await request(t, busy), 'served');
});

t.test('held clients have half of the descriptors at the most', async (t) => {
  // One is for the listener.
  const reservedDescriptors = processDescriptorLimit() - 41;
  const { rig } = await holding(t, { limits: { reservedDescriptors } });
  const changes = collect(t, limitChanged);
  const clients = await clientsOf(t, rig, 12);
  t.equal(rig.counters.held, 10, '10 with 2 each are half of 40');
  t.match(changes, [{ limit: 'max-held-connections', value: 10, reached: true }]);
  for (const client of clients) client.destroy();
  await until(() => changes.length === 2);
  t.match(changes, [{ reached: true }, { reached: false }]);
});

t.test('the hold timeout can be given, changed and taken away while an engine runs', async (t) => {
  const clock = new FakeClock();
  const rig = new TcpRig(t, { clock });
  const port = await rig.serve([]);
  t.equal(await connectionEnd(t, port), 'ECONNRESET');
  await rig.engine.setLimits?.({ holdTimeoutMs: 1000 });
  const before = await tcpClient(t, port);
  await held(rig, 1);
  await rig.engine.setLimits?.({ holdTimeoutMs: 0 });
  t.equal(await connectionEnd(t, port), 'ECONNRESET');
  t.equal(rig.counters.held, 1, 'who is held keeps the time');
  clock.advance(1000);
  t.equal(await endOf(before), 'ECONNRESET');
  t.match(rig.counters, { rejectedNoEndpoint: 2, rejectedHoldTimeout: 1 });
});
