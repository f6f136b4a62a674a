/** TCP clients of a service port without endpoints, with a hold timeout. */
import { once } from 'node:events';
import t from 'tap';
import { tcpHeld, tcpHoldEnded, limitChanged, rejected } from '../../../src/proxysocket/events.ts';
import { collect, settledDescriptors } from '../../support/sockets.ts';
import * as peers from '../../support/tcp-peers.ts';
import { held, holding, HOUR, tcpSpec } from '../../support/tcp-rig.ts';
import { until } from '../../support/until.ts';
import type { LimitChange } from '../../../src/proxysocket/limits.ts';
import type { EndpointSpec } from '../../../src/proxysocket/spec.ts';
import { FakeHost, listenSpec } from '../../support/fake-host.ts';

t.test('a client gets its answer when an endpoint comes, without a byte lost', async (t) => {
  const { rig, port } = await holding(t);
  const begun = collect(t, tcpHeld);
  const ended = collect(t, tcpHoldEnded);
  const [early, silent] = [await peers.tcpClient(t, port), await peers.tcpClient(t, port)];
  early.write('hello ');
  await held(rig, 2);
  early.write('there');
  const server = await peers.echoServer(t);
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
  const clients = await Promise.all(bodies.map(() => peers.tcpClient(t, port)));
  for (const [index, client] of clients.entries()) client.end(bodies[index] ?? '');
  // When it has been seen that this one has gone, the ends of the others have been seen.
  const last = await peers.tcpClient(t, port);
  await until(() => rig.counters.heldTotal === clients.length + 1);
  last.end();
  await held(rig, clients.length);
  const answers = Promise.all(clients.map(peers.readAll));
  await rig.endpoints([(await peers.echoServer(t)).endpoint]);
  for (const [index, answer] of (await answers).entries())
    t.ok(answer.equals(bodies[index] ?? answer), `${sizes[index]} bytes`);
  await until(() => rig.counters.active === 0);
  const all = sizes.reduce((sum, size) => sum + size, 0);
  t.equal(rig.counters.bytesIn, all);
});

t.test('a client that leaves is released at once, however it leaves', async (t) => {
  const { rig, port } = await holding(t);
  const ended = collect(t, tcpHoldEnded);
  const before = await settledDescriptors();
  const clients = await Promise.all(Array.from({ length: 4 }, () => peers.tcpClient(t, port)));
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
  t.equal(await peers.endOf(half as never), 'ECONNRESET', 'it can be waiting for nothing');
  t.same(new Set(ended.map(({ reason }) => reason)), new Set(['client-gone']));
  t.match(rig.counters, { rejectedNoEndpoint: 0, rejectedHoldTimeout: 0, active: 0 });
  await until(() => true);
  t.equal(await settledDescriptors(), before, 'no descriptor is left');
});

t.test('a client that is held again after its endpoint has gone loses nothing', async (t) => {
  const { rig, port } = await holding(t);
  const client = await peers.tcpClient(t, port);
  client.write('one ');
  await held(rig, 1);
  // It never answers, so the client is being connected until it is gone.
  await rig.endpoints([await peers.blackHole(t)]);
  await until(() => rig.counters.held === 0);
  client.write('two');
  await rig.endpoints([]);
  await held(rig, 1);
  await rig.endpoints([(await peers.echoServer(t)).endpoint]);
  let answer = '';
  client.on('data', (chunk) => (answer += String(chunk)));
  await until(() => answer === 'one two');
  t.equal(rig.counters.heldTotal, 1, 'it is one client');
});

t.test('clients that connect while listeners close are not held', async (t) => {
  const { rig } = await holding(t);
  const names = Array.from({ length: 600 }, (_, index) => `test/web${index}`);
  await rig.engine.apply(names.map((name) => ({ kind: 'set', spec: tcpSpec([], { name }) })));
  const last = names.slice(-50).map((name) => rig.port(name));
  const closed = rig.engine.close();
  const ends = await Promise.all(last.map((port) => peers.connectionEnd(t, port)));
  t.ok(ends.every((end) => end === 'ECONNRESET' || end === 'ECONNREFUSED'));
  await closed;
});

// Held clients, on fake sockets: times, limits and batches.

const ENDPOINT = peers.endpointAt(1);
const LIMITS: LimitChange = { holdTimeoutMs: 5000, connectTimeoutsMs: [HOUR] };

type Held = Awaited<ReturnType<typeof setUp>>;

/** A service port without endpoints. */
async function setUp(limits = LIMITS, descriptors = 100_000) {
  const host = new FakeHost({ descriptors });
  await host.setLimits(limits);
  await host.set(listenSpec('a', ['10.0.0.1:80']));
  return {
    host,
    clock: host.clock,
    client: () => host.connect('10.0.0.1', ''),
    counters: () => host.counters('a'),
    endpoints: (...endpoints: EndpointSpec[]) =>
      host.apply([{ kind: 'endpoints', name: 'a', endpoints }]),
  };
}

t.test('a client is reset after the hold timeout, and no earlier', async (t) => {
  const ended = collect(t, tcpHoldEnded);
  const refused = collect(t, rejected);
  const { host, clock, client, counters } = await setUp();
  const first = client();
  clock.advance(3000);
  const { connections } = await host.inspect({ maxConnections: 10 });
  t.match(connections, [{ client: '192.0.2.1:1', endpoint: '', state: 'held', ageMs: 3000 }]);
  const second = client();
  clock.advance(1999);
  t.match(counters(), { held: 2 });
  clock.advance(1);
  t.match(counters(), { held: 1 });
  t.same([first.resets, second.resets], [1, 0]);
  clock.advance(3000);
  t.equal(second.resets, 1);
  t.match(counters(), { held: 0, rejectedHoldTimeout: 2, rejectedNoEndpoint: 0 });
  const timedOut = { reason: 'hold-timeout', durationMs: 5000 };
  t.match(ended, [timedOut, timedOut]);
  t.match(refused, [{ reason: 'hold-timeout', protocol: 'TCP' }, { reason: 'hold-timeout' }]);
});

t.test('endpoints that come and go make a client wait twice the time at the most', async (t) => {
  const { clock, client, counters, endpoints } = await setUp();
  const { dials } = client();
  for (const ms of [4000, 999, 4999]) {
    t.match(counters(), { held: 1 });
    clock.advance(ms);
    await endpoints(ENDPOINT);
    t.match(counters(), { held: 0 });
    await endpoints();
  }
  t.equal(dials.length, 3);
  t.match(counters(), { held: 0, heldTotal: 1, rejectedHoldTimeout: 1 });
});

t.test('the hold timeout can be given, changed and taken away while an engine runs', async (t) => {
  const { host, clock, client, counters } = await setUp({});
  t.equal(client().resets, 1);
  await host.setLimits({ holdTimeoutMs: 1000 });
  const before = client();
  await host.setLimits({ holdTimeoutMs: 0 });
  t.equal(client().resets, 1);
  t.match(counters(), { held: 1 }, 'who is held keeps the time');
  clock.advance(1000);
  t.equal(before.resets, 1);
  t.match(counters(), { rejectedNoEndpoint: 2, rejectedHoldTimeout: 1 });
});

t.test('held clients have a limit, and half of the descriptors at the most', async (t) => {
  for (const [maxHeldConnections, value] of [
    [2, 2],
    // One is for the listener; 10 with 2 each are half of 40.
    [1000, 10],
  ] as const) {
    const changes = collect(t, limitChanged);
    const { host, client, counters } = await setUp({ ...LIMITS, maxHeldConnections }, 41);
    for (let count = 0; count < 12; count += 1) client();
    t.match(counters(), { held: value, rejectedLimit: 12 - value });
    await host.set({ ...listenSpec('b', ['10.0.0.2:80']), endpoints: [ENDPOINT] });
    t.equal(host.connect('10.0.0.2', '').dials.length, 1, 'others are let in');
    const limit = { limit: 'max-held-connections', value };
    t.match(changes, [{ ...limit, reached: true }]);
    await host.apply([{ kind: 'remove', name: 'a' }]);
    t.match(changes[1], { reached: false });
  }
});

t.test('many clients continue in batches, while there is an endpoint', async (t) => {
  const { clock, client, counters, endpoints } = await setUp();
  const clients = Array.from({ length: 200 }, client);
  const dialed = (): number => clients.filter(({ dials }) => dials.length > 0).length;
  const ended = collect(t, tcpHoldEnded);
  await endpoints({ ...ENDPOINT, internal: false });
  t.same(ended, [], 'only an endpoint for their traffic ends the wait');
  await endpoints(ENDPOINT);
  t.equal(dialed(), 64, 'others have their turn in between');
  await endpoints();
  t.match(counters(), { held: 200 });
  clock.advance(10);
  t.equal(dialed(), 64, 'the endpoint was gone before the next batch');
  await endpoints(ENDPOINT);
  clock.advance(100);
  t.equal(dialed(), 200);
  t.match(counters(), { held: 0, heldTotal: 200 });
});

t.test('clients are held only while an endpoint may come', async (t) => {
  const ended = collect(t, tcpHoldEnded);
  const drained = { ...ENDPOINT, internal: false, external: false, drained: ['internal'] } as const;
  for (const [reason, end] of [
    ['service-gone', ({ host }: Held) => host.apply([{ kind: 'remove', name: 'a' }])],
    ['service-gone', ({ host }: Held) => host.close()],
    ['destroyed', ({ host }: Held) => host.destroy()],
    ['drained', ({ endpoints }: Held) => endpoints(drained)],
  ] as const) {
    const scene = await setUp();
    const client = scene.client();
    await end(scene);
    t.equal(client.resets, 1);
    t.match(ended.splice(0), [{ reason }]);
  }
  const { host, counters, endpoints } = await setUp();
  await endpoints(ENDPOINT);
  t.equal(host.connect('10.0.0.1', 'ECONNREFUSED').resets, 1);
  t.match(counters(), { rejectedConnectFailed: 1, heldTotal: 0 }, 'nor if endpoints refuse');
});
