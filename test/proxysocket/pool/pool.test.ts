/** Workers that die are replaced; if they die again and again, an engine in the main thread continues with what they had. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { dataPlaneFault, listenerClosed, listenerOpened } from '../../../src/proxysocket/events.ts';
import { Sys } from '../../../src/proxysocket/linux/sys/sys.ts';
import { PoolListener } from '../../../src/proxysocket/pool/listening-sockets.ts';
import { Pool } from '../../../src/proxysocket/pool/pool.ts';
import { DEFAULT_BACKOFF } from '../../../src/util/backoff.ts';
import { order, turnsLeft } from '../../support/crashing-worker.ts';
import { linuxTest } from '../../support/linux-sys.ts';
import {
  CLIENTS,
  connections,
  crash,
  endpoints,
  module,
  poolOf,
  remove,
  serving,
  set,
} from '../../support/pool-rig.ts';
import { collect, openDescriptors } from '../../support/sockets.ts';
import * as peers from '../../support/tcp-peers.ts';
import { portOf, tcpSpec, udpSpec } from '../../support/tcp-rig.ts';
import { until } from '../../support/until.ts';
import t, { type Test } from 'tap';
import { createNodeEngine } from '../../../src/proxysocket/node/engine.ts';
import { CrashBudget, PoolWorker } from '../../../src/proxysocket/pool/worker.ts';
import { UdpBackend, UdpClient } from '../../support/udp-peers.ts';

const POOL_URL = new URL('../../../src/proxysocket/pool/pool.ts', import.meta.url).href;

linuxTest('a worker that dies is replaced: the same ports, the same services', async (t) => {
  const [server, echo] = [await peers.namedServer(t, 'there'), await peers.echoServer(t)];
  const { pool, port, counters } = await serving(t, [server.endpoint]);
  const name = 'test/echo:x';
  await pool.apply([set(tcpSpec([echo.endpoint], { name }))]);
  const echoPort = portOf(pool, name);
  t.equal(await peers.request(t, port), 'there');
  const client = await peers.tcpClient(t, echoPort);
  await until(() => counters(name)?.active === 1);
  const end = peers.endOf(client);
  const descriptors = openDescriptors();
  const opened = collect(t, listenerOpened);

  t.match(await crash(t, pool), [{ what: 'worker-lost', error: { message: 'a crash' } }]);
  t.equal(portOf(pool), port, 'a snapshot shows them all the time');
  // What is asked meanwhile waits for the next worker.
  await pool.apply([endpoints(echo.endpoint)]);
  t.same(opened, [], 'its listeners have never closed');
  t.equal(await end, 'ECONNRESET', 'a connection that is cut must not look complete');
  t.same([portOf(pool), portOf(pool, name)], [port, echoPort]);
  t.equal(await peers.request(t, port, 'echo'), 'echo');
  t.match(counters(), { connections: 2, bytesOut: 9 }, 'counters never go back');
  t.match(counters(name), { connections: 1, active: 0 });
  await until(() => openDescriptors() < descriptors);
});

linuxTest('counters continue if a worker dies before it has all of the first batch', async (t) => {
  const { pool, port, counters } = await serving(t, [
    (await peers.namedServer(t, 'there')).endpoint,
  ]);
  const others = Array.from({ length: 1500 }, (_, index) => `test/other:${index}`);
  await pool.apply(others.map((name) => set(tcpSpec([], { name }))));
  t.equal(await peers.request(t, port), 'there');
  await crash(t, pool);
  order(-3);
  const faults = collect(t, dataPlaneFault);
  await until(() => faults.length > 0);
  await pool.apply([]);
  t.equal(await peers.request(t, port), 'there');
  await until(() => counters()?.active === 0);
  t.match(counters(), { connections: 2, bytesOut: 10 });
});

linuxTest('changes that a dying worker has not carried out are not lost', async (t) => {
  const [one, two] = [await peers.namedServer(t, 'one'), await peers.namedServer(t, 'two')];
  const { pool, port } = await serving(t, [one.endpoint]);
  order(-1);
  await Promise.all([
    pool.apply([endpoints(two.endpoint)]),
    pool.apply([set(tcpSpec([two.endpoint], { name: 'test/other:x' }))]),
    pool.apply([remove('test/none:x')]),
  ]);
  t.equal(await peers.request(t, port), 'two');
  t.equal(await peers.request(t, portOf(pool, 'test/other:x')), 'two');
  order(-1);
  await pool.apply([remove()]);
  t.equal(await peers.connectionEnd(t, port), 'ECONNREFUSED');
});

linuxTest('a listener closes although the worker that got its socket never took it', async (t) => {
  const { pool, port } = await serving(t, []);
  const give = Reflect.get(PoolListener.prototype, 'give');
  t.teardown(() => Object.assign(PoolListener.prototype, { give }));
  const given = Promise.withResolvers<void>();
  PoolListener.prototype.give = function (this: PoolListener, worker) {
    given.resolve();
    return give.call(this, worker);
  };
  await pool.loseWorker();
  await given.promise;
  await Promise.all([pool.loseWorker(), pool.apply([remove()])]);
  t.equal(await peers.connectionEnd(t, port), 'ECONNREFUSED');
});

linuxTest('its listeners close at once, and connections may take their time', async (t) => {
  const { pool, port, counters } = await serving(t, [(await peers.echoServer(t)).endpoint], {
    backoff: DEFAULT_BACKOFF,
    workers: 2,
  });
  const clients = await connections(t, port);
  const faults = collect(t, dataPlaneFault);
  await pool.loseWorker();
  await until(() => faults.length === 1);
  const events = collect(t, listenerClosed);
  const closed = pool.close();
  const isOpen = () =>
    peers.kernelSockets().some(({ localPort, state }) => localPort === port && state === 10);
  await until(() => !isOpen());
  t.equal(events.length, 1);
  t.ok(counters()?.active);
  for (const client of clients) client.destroy();
  await closed;
});

linuxTest('it may end while a worker is being replaced', async (t) => {
  for (const how of ['close', 'destroy'] as const) {
    const before = openDescriptors();
    const { pool } = await serving(t, [], { backoff: DEFAULT_BACKOFF });
    await crash(t, pool);
    await pool[how]();
    t.same(pool.snapshot(), []);
    await until(() => openDescriptors() <= before);
  }
});

linuxTest('a worker is terminated only if it hangs, however many listeners it has', async (t) => {
  const { prototype } = PoolWorker;
  const terminated = t.capture(prototype, 'terminate', Reflect.get(prototype, 'terminate'));
  for (const hangs of [false, true]) {
    const before = openDescriptors();
    const { pool } = await serving(t, []);
    const many = Array.from({ length: 300 }, (_, n) => set(tcpSpec([], { name: `test/${n}` })));
    await pool.apply(many);
    if (hangs) order(3);
    const applied = pool.apply([]).catch(() => undefined);
    await pool.destroy();
    await applied;
    order(0);
    t.equal(terminated().length, hangs ? 1 : 0);
    await until(() => openDescriptors() <= before);
  }
});

linuxTest('a replacement that dies with its first batch is not missed by close', async (t) => {
  const before = openDescriptors();
  const { pool } = await serving(t, []);
  await crash(t, pool);
  order(-2);
  await until(() => turnsLeft() < 2);
  await pool.close();
  await until(() => openDescriptors() <= before);
});

linuxTest('a probe that fails is named, and nothing is left', async (t) => {
  const before = openDescriptors();
  order(2);
  const failure = { name: 'UnfitError', message: 'weather: it rains' };
  await t.rejects(Pool.start({ module }), failure);
  order(0);
  await until(() => openDescriptors() <= before);
});

linuxTest('without descriptors for all workers, nothing is left', async (t) => {
  const before = openDescriptors();
  const wakeUp = Reflect.get(Sys.prototype, 'wakeUp');
  t.teardown(() => Object.assign(Sys.prototype, { wakeUp }));
  let calls = 0;
  Sys.prototype.wakeUp = function (this: Sys) {
    calls += 1;
    if (calls > 2) throw new Error('EMFILE');
    return wakeUp.call(this);
  };
  await t.rejects(Pool.start({ module, workers: 3 }), { message: 'EMFILE' });
  t.equal(openDescriptors(), before);
});

linuxTest('a missing module is an error, not a wait', async (t) => {
  const missing = new URL('no-such-worker.ts', import.meta.url);
  await t.rejects(poolOf(t, { module: missing }), { code: /MODULE_NOT_FOUND$/ });
});

for (const [how, code] of [
  ['process.exit(3)', 3],
  ['setTimeout(() => { throw new Error("unexpected") })', 1],
  ['void 0', 0],
] as const) {
  linuxTest(`a process that ends itself is not held up: ${how}`, async (t) => {
    const text = `
      const { Pool } = await import(${JSON.stringify(POOL_URL)});
      const engine = await Pool.start();
      if (${code} === 0) await engine.close();
      ${how};`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', text], { stdio: 'ignore' });
    t.teardown(() => child.kill('SIGKILL'));
    t.same(await once(child, 'exit'), [code, null]);
  });
}

const LOST = [1, 2, 3].map(() => ({ what: 'worker-lost' }));

async function mortal(t: Test, { workers = 1, ready = Promise.resolve() } = {}) {
  const echo = await peers.echoServer(t);
  const served = await serving(t, [echo.endpoint], {
    workers,
    fallback: async (counters) => {
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
  t.equal(await peers.request(t, port, 'hello'), 'hello');
  const cut = await peers.tcpClient(t, port);
  await until(() => counters()?.active === 1);
  const end = peers.endOf(cut);
  t.equal(pool.kind, 'linux');

  const faults = await crash(t, pool, 3);
  await until(() => pool.kind === 'node');
  t.match(faults, [...LOST, { what: 'fallback' }]);
  t.equal(faults.length, 4);
  t.equal(await end, 'ECONNRESET');
  await pool.apply([]);
  t.same([portOf(pool), portOf(pool, 'test/dns')], [port, dns]);
  t.equal(await peers.request(t, port, 'again'), 'again');
  const client = await UdpClient.open(t);
  t.equal(await client.ask('who?', dns), 'who?');
  await until(() => counters()?.active === 0);
  const expected = { connections: 3, bytesIn: 10, bytesOut: 10, active: 0 };
  t.match(counters(), expected, 'counters continue from where they were');

  await pool.apply([endpoints()]);
  t.equal(await peers.connectionEnd(t, port), 'ECONNRESET');
  await pool.apply([remove()]);
  t.equal(await peers.connectionEnd(t, port), 'ECONNREFUSED');
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
  const client = await peers.tcpClient(t, port);
  await until(() => counters()?.active === 1);
  const end = peers.endOf(client);
  order(-1);
  const faults = collect(t, dataPlaneFault);
  const asked = pool.apply([]);
  await until(() => faults.length > 0);
  const waiting = await peers.tcpClient(t, port);
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
  for (const socket of left) t.ok(await peers.echoed(socket, 'on'));
  t.equal(counters()?.active, left.length);
  for (const socket of [...left, ...(await connections(t, port))]) socket.destroy();
  t.equal(portOf(pool), port);
  await until(() => counters()?.active === 0);
  t.equal(counters()?.connections, 2 * CLIENTS.length);
});

linuxTest('without a fallback engine, workers are restarted each time', async (t) => {
  const { pool, port } = await serving(t, [(await peers.echoServer(t)).endpoint]);
  t.match(await crash(t, pool, 4), [...LOST, { what: 'worker-lost' }]);
  t.equal(pool.kind, 'linux');
  t.equal(await peers.request(t, port, 'there'), 'there');
});

t.test('three crashes within a minute are too many', async (t) => {
  const budget = new CrashBudget();
  const times = [0, 50_000, 100_000, 150_000, 161_000, 162_000];
  const isTooMany = times.map((at) => budget.add(at));
  t.same(isTooMany, [false, false, false, false, false, true]);
});
