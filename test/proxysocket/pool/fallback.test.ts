/** Workers die again and again: an engine in the main thread continues, with their sockets and their counters. */
import { once } from 'node:events';
import t, { type Test } from 'tap';
import { dataPlaneFault } from '../../../src/proxysocket/events.ts';
import { createNodeEngine } from '../../../src/proxysocket/node/engine.ts';
import { CrashBudget } from '../../../src/proxysocket/pool/worker.ts';
import { order } from '../../support/crashing-worker.ts';
import { linuxTest } from '../../support/linux-sys.ts';
import {
  CLIENTS,
  connections,
  crash,
  echoed,
  endpoints,
  remove,
  serving,
  set,
} from '../../support/pool-rig.ts';
import { collect, openDescriptors } from '../../support/sockets.ts';
import { connectionEnd, echoServer, endOf, request, tcpClient } from '../../support/tcp-peers.ts';
import { portOf, tcpSpec, udpSpec } from '../../support/tcp-rig.ts';
import { UdpBackend, UdpClient } from '../../support/udp-rig.ts';
import { until } from '../../support/until.ts';

const LOST = ['worker-lost', 'worker-lost', 'worker-lost'];

async function mortal(t: Test, { workers = 1, ready = Promise.resolve() } = {}) {
  const echo = await echoServer(t);
  const served = await serving(t, [echo.endpoint], {
    workers,
    fallback: () => async (counters) => {
      await ready;
      return createNodeEngine({ counters });
    },
  });
  return { ...served, echo };
}

linuxTest('the fallback engine has the same ports, sockets and counters', async (t) => {
  const { pool, port, counters, echo } = await mortal(t);
  const udp = await UdpBackend.start(t);
  await pool.apply([set(udpSpec([udp.spec]))]);
  const dns = portOf(pool, 'test/dns');
  t.equal(await request(t, port, 'hello'), 'hello');
  const cut = await tcpClient(t, port);
  await until(() => counters()?.active === 1);
  const end = endOf(cut);
  t.equal(pool.kind, 'linux');

  const faults = await crash(t, pool, 3);
  await until(() => pool.kind === 'node');
  t.same(
    faults.map(({ what }) => what),
    [...LOST, 'fallback'],
  );
  t.equal(await end, 'ECONNRESET');
  await pool.apply([]);
  t.same([portOf(pool), portOf(pool, 'test/dns')], [port, dns]);
  t.equal(await request(t, port, 'again'), 'again');
  const client = await UdpClient.open(t);
  t.equal(await client.ask('who?', dns), 'who?');
  await until(() => counters()?.active === 0);
  const expected = { connections: 3, bytesIn: 10, bytesOut: 10, active: 0 };
  t.match(counters(), expected, 'counters continue from where they were');

  await pool.apply([endpoints()]);
  t.equal(await connectionEnd(t, port), 'ECONNRESET');
  await pool.apply([remove()]);
  t.equal(await connectionEnd(t, port), 'ECONNREFUSED');
  await pool.apply([set(tcpSpec([echo.endpoint]))]);
  t.equal(counters()?.connections, 0, 'a service port that was removed begins from zero');
  await pool.destroy();
  t.same(pool.snapshot(), []);
  await t.rejects(pool.apply([]), { code: 'KPNG_SINK_FAILED' });
});

linuxTest('a client that waits while workers die is served by the fallback engine', async (t) => {
  const before = openDescriptors();
  const ready = Promise.withResolvers<void>();
  const { pool, port, counters, echo } = await mortal(t, { ready: ready.promise });
  await crash(t, pool, 2);
  const client = await tcpClient(t, port);
  await until(() => counters()?.active === 1);
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
  const { pool, port, counters } = await mortal(t, { workers: 2 });
  const sockets = await connections(t, port);
  for (let crashes = 0; crashes < 3; crashes += 1) {
    await pool.loseWorker(0);
    if (crashes < 2) await pool.apply([]);
  }
  await until(() => pool.kind === 'node');
  const left = sockets.filter(({ destroyed }) => !destroyed);
  t.ok(left.length > 0 && left.length < sockets.length, `${left.length} of ${sockets.length}`);
  for (const socket of left) t.ok(await echoed(socket, 'on'));
  t.equal(counters()?.active, left.length);
  for (const socket of [...left, ...(await connections(t, port))]) socket.destroy();
  t.equal(portOf(pool), port);
  await until(() => counters()?.active === 0);
  t.equal(counters()?.connections, 2 * CLIENTS.length);
});

linuxTest('without a fallback engine, workers are restarted each time', async (t) => {
  const { pool, port } = await serving(t, [(await echoServer(t)).endpoint]);
  t.same(
    (await crash(t, pool, 4)).map(({ what }) => what),
    [...LOST, 'worker-lost'],
  );
  t.equal(pool.kind, 'linux');
  t.equal(await request(t, port, 'there'), 'there');
});

t.test('three crashes within a minute are too many', async (t) => {
  const budget = new CrashBudget();
  const times = [0, 50_000, 100_000, 150_000, 161_000, 162_000];
  const isTooMany = times.map((at) => budget.add(at));
  t.same(isTooMany, [false, false, false, false, false, true]);
});
