import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  dataPlaneFault,
  limitChanged,
  listenerOpened,
  tcpAccepted,
} from '../../../src/proxysocket/events.ts';
import { Pool } from '../../../src/proxysocket/pool/pool.ts';
import { DEFAULT_BACKOFF } from '../../../src/util/backoff.ts';
import { order } from '../../support/crashing-worker.ts';
import { linuxTest } from '../../support/linux-sys.ts';
import { crash, endpoints, module, poolOf, remove, serving, set } from '../../support/pool-rig.ts';
import { collect, openDescriptors } from '../../support/sockets.ts';
import {
  connectionEnd,
  echoServer,
  endOf,
  namedServer,
  request,
  tcpClient,
} from '../../support/tcp-peers.ts';
import { portOf, tcpSpec, udpSpec } from '../../support/tcp-rig.ts';
import { UdpBackend, UdpClient } from '../../support/udp-rig.ts';
import { until } from '../../support/until.ts';

const POOL_URL = new URL('../../../src/proxysocket/pool/pool.ts', import.meta.url).href;

linuxTest('the whole life: probes, worker, traffic, end', async (t) => {
  const before = openDescriptors();
  const engine = await Pool.start();
  const server = await echoServer(t);
  const udp = await UdpBackend.start(t);
  await engine.apply([set(tcpSpec([server.endpoint])), set(udpSpec([udp.spec]))]);
  t.equal(await request(t, portOf(engine), 'hello'), 'hello');
  const client = await UdpClient.open(t);
  t.equal(await client.ask('who?', portOf(engine, 'test/dns')), 'who?');
  t.match(engine.snapshot(), [
    { name: 'test/web:http', endpoints: 1, counters: { connections: 1, bytesIn: 5, bytesOut: 5 } },
    { name: 'test/dns', protocol: 'UDP', counters: { datagramsIn: 1, datagramsOut: 1 } },
  ]);
  await engine.destroy();
  await engine.destroy();
  t.same(engine.snapshot(), []);
  await t.rejects(engine.apply([]), { code: 'KPNG_SINK_FAILED' });
  await server.kill();
  await client.close();
  await udp.close();
  // Node closes sockets, and the ports of a thread, some turns later.
  await until(() => openDescriptors() <= before);
});

linuxTest('events arrive for every listener, also for a late one', async (t) => {
  const options = { limits: { maxConnections: 1 } };
  const { port, counters } = await serving(t, [(await echoServer(t)).endpoint], options);
  await tcpClient(t, port);
  await until(() => counters()?.active === 1);
  const accepted = collect(t, tcpAccepted);
  const limits = collect(t, limitChanged);
  t.equal(await connectionEnd(t, port), 'ECONNRESET');
  await until(() => accepted.length === 1 && limits.length === 1);
  t.match(accepted, [{ servicePort: 'test/web:http', localAddress: `127.0.0.1:${port}` }]);
  t.match(limits, [{ limit: 'max-connections', value: 1, reached: true }]);
});

linuxTest('a worker that dies is replaced: the same ports, the same services', async (t) => {
  const [server, echo] = [await namedServer(t, 'there'), await echoServer(t)];
  const { pool, port, counters } = await serving(t, [server.endpoint]);
  const name = 'test/echo:x';
  await pool.apply([set(tcpSpec([echo.endpoint], { name }))]);
  const echoPort = portOf(pool, name);
  t.equal(await request(t, port), 'there');
  const client = await tcpClient(t, echoPort);
  await until(() => counters(name)?.active === 1);
  const end = endOf(client);
  const descriptors = openDescriptors();
  const opened = collect(t, listenerOpened);

  t.match(await crash(t, pool), [{ what: 'worker-lost', error: { message: 'a crash' } }]);
  t.equal(portOf(pool), port, 'a snapshot shows them all the time');
  // What is asked meanwhile waits for the next worker.
  await pool.apply([endpoints(echo.endpoint)]);
  t.equal(opened.length, 2);
  t.equal(await end, 'ECONNRESET', 'a connection that is cut must not look complete');
  t.same([portOf(pool), portOf(pool, name)], [port, echoPort]);
  t.equal(await request(t, port, 'echo'), 'echo');
  t.match(counters(), { connections: 2, bytesOut: 9 }, 'counters never go back');
  t.match(counters(name), { connections: 1, active: 0 });
  await until(() => openDescriptors() < descriptors);
});

linuxTest('counters continue if a worker dies before it has all of the first batch', async (t) => {
  const { pool, port, counters } = await serving(t, [(await namedServer(t, 'there')).endpoint]);
  const others = Array.from({ length: 1500 }, (_, index) => `test/other:${index}`);
  await pool.apply(others.map((name) => set(tcpSpec([], { name }))));
  t.equal(await request(t, port), 'there');
  await crash(t, pool);
  const faults = collect(t, dataPlaneFault);
  const onOpened = (): void => {
    listenerOpened.unsubscribe(onOpened);
    order(1);
  };
  listenerOpened.subscribe(onOpened);
  await until(() => faults.length > 0);
  await pool.apply([]);
  t.equal(await request(t, port), 'there');
  await until(() => counters()?.active === 0);
  t.match(counters(), { connections: 2, bytesOut: 10 });
});

linuxTest('changes that a dying worker has not carried out are not lost', async (t) => {
  const [one, two] = [await namedServer(t, 'one'), await namedServer(t, 'two')];
  const { pool, port } = await serving(t, [one.endpoint]);
  order(1);
  await Promise.all([
    pool.apply([endpoints(two.endpoint)]),
    pool.apply([set(tcpSpec([two.endpoint], { name: 'test/other:x' }))]),
    pool.apply([remove('test/none:x')]),
  ]);
  t.equal(await request(t, port), 'two');
  t.equal(await request(t, portOf(pool, 'test/other:x')), 'two');
  order(1);
  await pool.apply([remove()]);
  t.equal(await connectionEnd(t, port), 'ECONNREFUSED');
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

linuxTest('a hanging worker is eventually terminated', async (t) => {
  const before = openDescriptors();
  const { pool } = await serving(t, []);
  order(3);
  const hangs = pool.apply([]).catch(() => undefined);
  await pool.destroy();
  await hangs;
  order(0);
  await until(() => openDescriptors() <= before);
});

linuxTest('a replacement that dies with its first batch is not missed by close', async (t) => {
  const before = openDescriptors();
  const { pool } = await serving(t, []);
  let closed: Promise<void> | undefined;
  const onOpened = (): void => {
    listenerOpened.unsubscribe(onOpened);
    // The replacement is in the middle of its first batch.
    order(1);
    closed = pool.close();
  };
  listenerOpened.subscribe(onOpened);
  order(1);
  await pool.apply([]).catch(() => undefined);
  await until(() => closed !== undefined);
  await closed;
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
