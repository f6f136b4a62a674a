import t, { type Test } from 'tap';
import { dataPlaneFault } from '../../../src/proxysocket/events.ts';
import { createLinuxEngine } from '../../../src/proxysocket/linux/engine.ts';
import type { ThreadEngine } from '../../../src/proxysocket/threads/engine.ts';
import { Deaths, Succession } from '../../../src/proxysocket/threads/successor.ts';
import { newCounters } from '../../../src/proxysocket/counters.ts';
import { createNodeEngine } from '../../../src/proxysocket/node/engine.ts';
import { order } from '../../support/crashing-order.ts';
import { FakeEngine } from '../../support/fake-engine.ts';
import { linuxTest } from '../../support/linux-sys.ts';
import { collect, openDescriptors } from '../../support/sockets.ts';
import { connectionEnd, echoServer, endOf, request, tcpClient } from '../../support/tcp-peers.ts';
import { tcpSpec } from '../../support/tcp-rig.ts';
import { UdpBackend, UdpClient } from '../../support/udp-rig.ts';
import { until } from '../../support/until.ts';

const module = new URL('../../support/crashing-worker.ts', import.meta.url);
/** Hardly any time between two workers. */
const backoff = { initialMs: 1, maxMs: 1, factor: 1, jitter: 0 };

async function mortalEngine(t: Test, withSuccessor: boolean): Promise<ThreadEngine> {
  order(0);
  const engine = await createLinuxEngine({
    module,
    backoff,
    ...(withSuccessor && { successor: async (formerPort) => createNodeEngine({ formerPort }) }),
  });
  t.teardown(() => engine.destroy());
  return engine;
}

function portOf(engine: ThreadEngine, name: string): number {
  const [listener] = engine.snapshot(new Set([name]))[0]?.listeners ?? [];
  return listener?.state === 'listening' ? listener.boundPort : 0;
}

/** Lets worker after worker die: as soon as one serves, it is its turn. */
async function crash(t: Test, engine: ThreadEngine, times: number): Promise<readonly string[]> {
  const faults = collect(t, dataPlaneFault);
  for (let deaths = 1; deaths <= times; deaths += 1) {
    order(1);
    // Wakes it, and is carried out by whoever comes after it.
    await engine.apply([]);
    t.equal(faults.filter(({ what }) => what === 'worker-lost').length, deaths);
  }
  return faults.map(({ what }) => what);
}

linuxTest('where workers keep dying, the other engine takes over their ports', async (t) => {
  const engine = await mortalEngine(t, true);
  const echo = await echoServer(t);
  const udp = await UdpBackend.start(t);
  const dns = { ...tcpSpec([udp.spec], { name: 'test/dns:dns' }), protocol: 'UDP' as const };
  await engine.apply([
    { kind: 'set', spec: tcpSpec([echo.endpoint]) },
    { kind: 'set', spec: dns },
  ]);
  const ports = ['test/web:http', 'test/dns:dns'].map((name) => portOf(engine, name));
  const [web = 0, names = 0] = ports;
  t.equal(await request(t, web, 'hello'), 'hello');
  const cut = await tcpClient(t, web);
  await until(() => engine.snapshot(new Set(['test/web:http']))[0]?.counters.active === 1);
  const end = endOf(cut);
  t.equal(engine.kind, 'linux');

  const faults = await crash(t, engine, 3);
  t.same(faults, ['worker-lost', 'worker-lost', 'worker-lost', 'given-up']);
  t.equal(engine.kind, 'node');
  t.equal(await end, 'ECONNRESET');
  t.same(
    ['test/web:http', 'test/dns:dns'].map((name) => portOf(engine, name)),
    ports,
  );
  t.equal(await request(t, web, 'again'), 'again');
  const client = await UdpClient.open(t);
  t.equal(await client.ask('who?', names), 'who?');
  await until(() => engine.snapshot(new Set(['test/web:http']))[0]?.counters.active === 0);
  t.match(
    engine.snapshot(new Set(['test/web:http'])),
    [{ counters: { connections: 3, bytesIn: 10, bytesOut: 10, active: 0 } }],
    'counters go on from where they were',
  );

  await engine.apply([{ kind: 'endpoints', name: 'test/web:http', endpoints: [] }]);
  t.equal(await connectionEnd(t, web), 'ECONNRESET');
  await engine.apply([{ kind: 'remove', name: 'test/web:http' }]);
  t.equal(await connectionEnd(t, web), 'ECONNREFUSED');
  await engine.destroy();
  t.same(engine.snapshot(), []);
  await t.rejects(engine.apply([]), { code: 'KPNG_SINK_FAILED' });
});

linuxTest('a connection of the last worker is reset, and nothing of it stays open', async (t) => {
  const before = openDescriptors();
  const engine = await mortalEngine(t, true);
  const echo = await echoServer(t);
  await engine.apply([{ kind: 'set', spec: tcpSpec([echo.endpoint]) }]);
  await crash(t, engine, 2);
  const client = await tcpClient(t, portOf(engine, 'test/web:http'));
  await until(() => engine.snapshot()[0]?.counters.active === 1);
  const end = endOf(client);
  await crash(t, engine, 1);
  t.equal(engine.kind, 'node');
  t.equal(await end, 'ECONNRESET');
  await engine.close();
  await echo.kill();
  await until(() => openDescriptors() <= before);
});

linuxTest('without another engine, another worker is tried each time', async (t) => {
  const engine = await mortalEngine(t, false);
  const echo = await echoServer(t);
  await engine.apply([{ kind: 'set', spec: tcpSpec([echo.endpoint]) }]);
  t.same(await crash(t, engine, 4), Array(4).fill('worker-lost'));
  t.equal(engine.kind, 'linux');
  t.equal(await request(t, portOf(engine, 'test/web:http'), 'there'), 'there');
});

t.test('three deaths within a minute are too many', (t) => {
  const deaths = new Deaths();
  for (const at of [0, 50_000, 100_000, 150_000]) deaths.add(at);
  t.notOk(deaths.areTooMany, 'not if there is time between them');
  deaths.add(161_000);
  t.notOk(deaths.areTooMany);
  deaths.add(162_000);
  t.ok(deaths.areTooMany);
  t.end();
});

t.test('counts of a service port that is gone are not given to its namesake', async (t) => {
  const engine = new FakeEngine();
  const counters = { ...newCounters(), connections: 7 };
  const former = new Map([
    ['test/web:http', { protocol: 'TCP' as const, counters }],
    ['test/old:x', { protocol: 'TCP' as const, counters }],
  ]);
  const succession = new Succession(engine, former);
  await engine.apply([{ kind: 'set', spec: tcpSpec([]) }]);
  const count = (): number | undefined => succession.snapshot()[0]?.counters.connections;
  t.equal(count(), 7);
  await engine.apply([{ kind: 'set', spec: tcpSpec([], { name: 'test/old:x' }) }]);
  t.match(succession.snapshot(new Set(['test/old:x'])), [{ counters: { connections: 0 } }]);
  await engine.apply([{ kind: 'set', spec: { ...tcpSpec([]), protocol: 'UDP' } }]);
  t.equal(count(), 0);
});
