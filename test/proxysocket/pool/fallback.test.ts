/** Workers die again and again: an engine in the main thread continues, with their sockets and their counters. */
import { once } from 'node:events';
import { type Socket } from 'node:net';
import t, { type Test } from 'tap';
import { dataPlaneFault } from '../../../src/proxysocket/events.ts';
import { createNodeEngine } from '../../../src/proxysocket/node/engine.ts';
import { CrashBudget } from '../../../src/proxysocket/pool/worker.ts';
import { Pool } from '../../../src/proxysocket/pool/pool.ts';
import { order } from '../../support/crashing-worker.ts';
import { linuxTest } from '../../support/linux-sys.ts';
import { collect, openDescriptors } from '../../support/sockets.ts';
import { connectionEnd, echoServer, endOf, request, tcpClient } from '../../support/tcp-peers.ts';
import { portOf, tcpSpec } from '../../support/tcp-rig.ts';
import { UdpBackend, UdpClient } from '../../support/udp-rig.ts';
import { until } from '../../support/until.ts';

const module = new URL('../../support/crashing-worker.ts', import.meta.url);
/** Hardly any time between two workers. */
const backoff = { initialMs: 1, maxMs: 1, factor: 1, jitter: 0 };

async function mortalPool(
  t: Test,
  { workers = 1, falls = true, ready = Promise.resolve() } = {},
): Promise<Pool> {
  order(0);
  const pool = await Pool.start({
    module,
    backoff,
    workers,
    ...(falls && {
      fallback: () => async (counters) => {
        await ready;
        return createNodeEngine({ counters });
      },
    }),
  });
  t.teardown(() => pool.destroy());
  return pool;
}

/** Lets worker after worker die: as soon as one serves, it is its turn. */
async function crash(t: Test, pool: Pool, times: number): Promise<readonly string[]> {
  const faults = collect(t, dataPlaneFault);
  for (let crashes = 1; crashes <= times; crashes += 1) {
    order(1);
    // Wakes it, and is carried out by whichever comes after it.
    await pool.apply([]);
    await until(() => faults.filter(({ what }) => what === 'worker-lost').length === crashes);
  }
  return faults.map(({ what }) => what);
}

linuxTest('the fallback engine has the same ports, sockets and counters', async (t) => {
  const pool = await mortalPool(t);
  const echo = await echoServer(t);
  const udp = await UdpBackend.start(t);
  const dns = { ...tcpSpec([udp.spec], { name: 'test/dns:dns' }), protocol: 'UDP' as const };
  await pool.apply([
    { kind: 'set', spec: tcpSpec([echo.endpoint]) },
    { kind: 'set', spec: dns },
  ]);
  const ports = ['test/web:http', 'test/dns:dns'].map((name) => portOf(pool, name));
  const [web = 0, names = 0] = ports;
  t.equal(await request(t, web, 'hello'), 'hello');
  const cut = await tcpClient(t, web);
  const counters = () => pool.snapshot(new Set(['test/web:http']))[0]?.counters;
  await until(() => counters()?.active === 1);
  const end = endOf(cut);
  t.equal(pool.kind, 'linux');

  const faults = await crash(t, pool, 3);
  await until(() => pool.kind === 'node');
  t.same(faults.slice(0, 3), ['worker-lost', 'worker-lost', 'worker-lost']);
  t.equal(await end, 'ECONNRESET');
  await pool.apply([]);
  t.same(
    ['test/web:http', 'test/dns:dns'].map((name) => portOf(pool, name)),
    ports,
  );
  t.equal(await request(t, web, 'again'), 'again');
  const client = await UdpClient.open(t);
  t.equal(await client.ask('who?', names), 'who?');
  await until(() => counters()?.active === 0);
  t.match(
    counters(),
    { connections: 3, bytesIn: 10, bytesOut: 10, active: 0 },
    'counters continue from where they were',
  );

  await pool.apply([{ kind: 'endpoints', name: 'test/web:http', endpoints: [] }]);
  t.equal(await connectionEnd(t, web), 'ECONNRESET');
  await pool.apply([{ kind: 'remove', name: 'test/web:http' }]);
  t.equal(await connectionEnd(t, web), 'ECONNREFUSED');
  await pool.apply([{ kind: 'set', spec: tcpSpec([echo.endpoint]) }]);
  t.equal(counters()?.connections, 0, 'a service port that was removed begins from zero');
  await pool.destroy();
  t.same(pool.snapshot(), []);
  await t.rejects(pool.apply([]), { code: 'KPNG_SINK_FAILED' });
});

linuxTest('a client that waits while workers die is served by the fallback engine', async (t) => {
  const before = openDescriptors();
  const ready = Promise.withResolvers<void>();
  const pool = await mortalPool(t, { ready: ready.promise });
  const echo = await echoServer(t);
  await pool.apply([{ kind: 'set', spec: tcpSpec([echo.endpoint]) }]);
  await crash(t, pool, 2);
  const port = portOf(pool, 'test/web:http');
  const client = await tcpClient(t, port);
  await until(() => pool.snapshot()[0]?.counters.active === 1);
  const end = endOf(client);
  order(1);
  const faults = collect(t, dataPlaneFault);
  const asked = pool.apply([]);
  await until(() => faults.length > 0);
  const waiting = await tcpClient(t, port);
  waiting.write('still here');
  ready.resolve();
  t.equal(String((await once(waiting, 'data'))[0]), 'still here');
  waiting.destroy();
  await asked;
  t.equal(pool.kind, 'node');
  t.equal(await end, 'ECONNRESET');
  await pool.close();
  await echo.kill();
  await until(() => openDescriptors() <= before);
});

linuxTest('of two workers, the living one keeps its connections until they end', async (t) => {
  const pool = await mortalPool(t, { workers: 2 });
  const echo = await echoServer(t);
  await pool.apply([{ kind: 'set', spec: tcpSpec([echo.endpoint]) }]);
  const port = portOf(pool, 'test/web:http');
  const ask = async (): Promise<Socket[]> =>
    Promise.all(
      Array.from({ length: 16 }, async (_, n) => {
        const socket = await tcpClient(t, port, '127.0.0.1', `127.0.4.${n + 1}`);
        socket.write('x');
        t.equal(String((await once(socket, 'data'))[0]), 'x');
        return socket;
      }),
    );
  const sockets = await ask();
  for (let crashes = 0; crashes < 3; crashes += 1) {
    await pool.loseWorker(0);
    if (crashes < 2) await pool.apply([]);
  }
  await until(() => pool.kind === 'node');
  const left = sockets.filter(({ destroyed }) => !destroyed);
  t.ok(left.length > 0 && left.length < sockets.length, `${left.length} of ${sockets.length}`);
  for (const socket of left) {
    socket.write('on');
    t.equal(String((await once(socket, 'data'))[0]), 'on');
  }
  const counted = () => pool.snapshot()[0]?.counters;
  t.equal(counted()?.active, left.length);
  for (const socket of [...left, ...(await ask())]) socket.destroy();
  t.equal(portOf(pool, 'test/web:http'), port);
  await until(() => counted()?.active === 0);
  t.equal(counted()?.connections, 32);
});

linuxTest('without a fallback engine, workers are restarted each time', async (t) => {
  const pool = await mortalPool(t, { falls: false });
  const echo = await echoServer(t);
  await pool.apply([{ kind: 'set', spec: tcpSpec([echo.endpoint]) }]);
  t.same(await crash(t, pool, 4), Array(4).fill('worker-lost'));
  t.equal(pool.kind, 'linux');
  t.equal(await request(t, portOf(pool, 'test/web:http'), 'there'), 'there');
});

t.test('three crashes within a minute are too many', (t) => {
  const budget = new CrashBudget();
  const times = [0, 50_000, 100_000, 150_000, 161_000, 162_000];
  t.same(
    times.map((at) => budget.add(at)),
    [false, false, false, false, false, true],
  );
  t.end();
});
