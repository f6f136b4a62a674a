/** How long TCP clients of a service port without endpoints are held, and how many. */
import type { Socket } from 'node:net';
import t, { type Test } from 'tap';
import { processDescriptorLimit } from '../../../src/proxysocket/core/descriptors.ts';
import { limitChanged, rejected, tcpHoldEnded } from '../../../src/proxysocket/events.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { held, holding, HOUR, TcpRig } from '../../support/tcp-rig.ts';
import { collect } from '../../support/sockets.ts';
import {
  blackHole,
  connectionEnd,
  endOf,
  namedServer,
  request,
  tcpClient,
} from '../../support/tcp-peers.ts';
import { until } from '../../support/until.ts';

t.test('a client is reset after the hold timeout, and no earlier', async (t) => {
  const clock = new FakeClock();
  const rig = holding(t, { clock, limits: { holdTimeoutMs: 5000 } });
  const ended = collect(t, tcpHoldEnded);
  const refused = collect(t, rejected);
  const port = await rig.serve([]);
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
  const rig = holding(t, {
    clock,
    limits: { holdTimeoutMs: 5000, connectTimeoutsMs: [HOUR] },
  });
  const port = await rig.serve([]);
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
  const rig = holding(t, { limits: { maxHeldConnections: 2 } });
  await clientsOf(t, rig, 6);
  t.match(rig.counters, { held: 2, rejectedLimit: 4 });
  const { endpoint } = await namedServer(t, 'served');
  const busy = await rig.serve([endpoint], { name: 'test/busy' });
  t.equal(await request(t, busy), 'served');
});

t.test('held clients have half of the descriptors at the most', async (t) => {
  // One is for the listener.
  const reservedDescriptors = processDescriptorLimit() - 41;
  const rig = holding(t, { limits: { reservedDescriptors } });
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
