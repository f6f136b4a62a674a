import { UdpBackend, UdpClient } from '../../support/udp-rig.ts';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Test } from 'tap';
import {
  dataPlaneFault,
  limitChanged,
  listenerOpened,
  tcpAccepted,
} from '../../../src/proxysocket/events.ts';
import type { EngineLimits } from '../../../src/proxysocket/limits.ts';
import { Pool } from '../../../src/proxysocket/pool/pool.ts';
import { order } from '../../support/crashing-worker.ts';
import { linuxTest } from '../../support/linux-sys.ts';
import { collect, openDescriptors } from '../../support/sockets.ts';
import {
  connectionEnd,
  echoServer,
  endOf,
  namedServer,
  request,
  tcpClient,
} from '../../support/tcp-peers.ts';
import { portOf, tcpSpec } from '../../support/tcp-rig.ts';
import { until } from '../../support/until.ts';

const POOL_URL = new URL('../../../src/proxysocket/pool/pool.ts', import.meta.url).href;
const module = new URL('../../support/crashing-worker.ts', import.meta.url);

async function engineFor(t: Test, limits: Partial<EngineLimits> = {}): Promise<Pool> {
  order(0);
  const engine = await Pool.start({ module, limits });
  t.teardown(() => engine.destroy());
  return engine;
}

/** Lets the worker die, and waits until it is dead. What wakes it is carried out by the next one. */
async function crash(t: Test, engine: Pool): Promise<void> {
  const faults = collect(t, dataPlaneFault);
  order(1);
  engine.apply([]).catch(() => undefined);
  await until(() => faults.length > 0);
  t.match(faults, [{ what: 'worker-lost', error: { message: 'a crash' } }]);
}

linuxTest('the whole life: probes, worker, traffic, end', async (t) => {
  const before = openDescriptors();
  const engine = await Pool.start();
  const server = await echoServer(t);
  const udp = await UdpBackend.start(t);
  await engine.apply([
    { kind: 'set', spec: tcpSpec([server.endpoint]) },
    { kind: 'set', spec: { ...tcpSpec([udp.spec], { name: 'test/dns:dns' }), protocol: 'UDP' } },
  ]);
  t.equal(await request(t, portOf(engine), 'hello'), 'hello');
  const client = await UdpClient.open(t);
  t.equal(await client.ask('who?', portOf(engine, 'test/dns:dns')), 'who?');
  t.match(engine.snapshot(), [
    { name: 'test/web:http', endpoints: 1, counters: { connections: 1, bytesIn: 5, bytesOut: 5 } },
    { name: 'test/dns:dns', protocol: 'UDP', counters: { datagramsIn: 1, datagramsOut: 1 } },
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
  const engine = await engineFor(t, { maxConnections: 1 });
  await engine.apply([{ kind: 'set', spec: tcpSpec([(await echoServer(t)).endpoint]) }]);
  const port = portOf(engine);
  const one = await tcpClient(t, port);
  await until(() => engine.snapshot()[0]?.counters.active === 1);
  const accepted = collect(t, tcpAccepted);
  const limits = collect(t, limitChanged);
  t.equal(await connectionEnd(t, port), 'ECONNRESET');
  await until(() => accepted.length === 1 && limits.length === 1);
  t.match(accepted, [{ servicePort: 'test/web:http', localAddress: `127.0.0.1:${port}` }]);
  t.match(limits, [{ limit: 'max-connections', value: 1, reached: true }]);
  one.destroy();
});

linuxTest('a worker that dies is replaced: the same ports, the same services', async (t) => {
  const engine = await engineFor(t);
  const server = await namedServer(t, 'there');
  const echo = await echoServer(t);
  await engine.apply([
    { kind: 'set', spec: tcpSpec([server.endpoint]) },
    { kind: 'set', spec: tcpSpec([echo.endpoint], { name: 'test/echo:x' }) },
  ]);
  const [port, echoPort] = [portOf(engine), portOf(engine, 'test/echo:x')];
  t.equal(await request(t, port), 'there');
  const client = await tcpClient(t, echoPort);
  await until(() => engine.snapshot(new Set(['test/echo:x']))[0]?.counters.active === 1);
  const end = endOf(client);
  const descriptors = openDescriptors();
  const opened = collect(t, listenerOpened);

  await crash(t, engine);
  t.equal(portOf(engine), port, 'a snapshot shows them all the time');
  // What is asked meanwhile waits for the next worker.
  await engine.apply([{ kind: 'endpoints', name: 'test/web:http', endpoints: [echo.endpoint] }]);
  t.equal(opened.length, 2);
  t.equal(await end, 'ECONNRESET', 'a connection that is cut must not look complete');
  t.same([portOf(engine), portOf(engine, 'test/echo:x')], [port, echoPort]);
  t.equal(await request(t, port, 'echo'), 'echo');
  t.match(
    engine.snapshot(new Set(['test/web:http'])),
    [{ counters: { connections: 2, bytesOut: 9 } }],
    'counters never go back',
  );
  t.match(engine.snapshot(new Set(['test/echo:x'])), [{ counters: { connections: 1, active: 0 } }]);
  await until(() => openDescriptors() < descriptors);
});

linuxTest('counters continue if a worker dies before it has all of the first batch', async (t) => {
  const engine = await engineFor(t);
  const server = await namedServer(t, 'there');
  const others = Array.from({ length: 1500 }, (_, index) =>
    tcpSpec([], { name: `test/other:${index}` }),
  );
  await engine.apply(
    [tcpSpec([server.endpoint]), ...others].map((spec) => ({ kind: 'set', spec })),
  );
  t.equal(await request(t, portOf(engine)), 'there');
  await crash(t, engine);
  const faults = collect(t, dataPlaneFault);
  const onOpened = (): void => {
    listenerOpened.unsubscribe(onOpened);
    order(1);
  };
  listenerOpened.subscribe(onOpened);
  await until(() => faults.length > 0);
  await engine.apply([]);
  t.equal(await request(t, portOf(engine)), 'there');
  await until(() => engine.snapshot()[0]?.counters.active === 0);
  t.match(engine.snapshot(new Set(['test/web:http'])), [
    { counters: { connections: 2, bytesOut: 10 } },
  ]);
});

linuxTest('changes that a dying worker has not carried out are not lost', async (t) => {
  const engine = await engineFor(t);
  const one = await namedServer(t, 'one');
  const two = await namedServer(t, 'two');
  await engine.apply([{ kind: 'set', spec: tcpSpec([one.endpoint]) }]);
  const port = portOf(engine);
  order(1);
  const changed = Promise.all([
    engine.apply([{ kind: 'endpoints', name: 'test/web:http', endpoints: [two.endpoint] }]),
    engine.apply([{ kind: 'set', spec: tcpSpec([two.endpoint], { name: 'test/other:x' }) }]),
    engine.apply([{ kind: 'remove', name: 'test/none:x' }]),
  ]);
  await changed;
  t.equal(await request(t, port), 'two');
  t.equal(await request(t, portOf(engine, 'test/other:x')), 'two');
  order(1);
  await engine.apply([{ kind: 'remove', name: 'test/web:http' }]);
  t.equal(await connectionEnd(t, port), 'ECONNREFUSED');
});

linuxTest('it may end while a worker is being replaced', async (t) => {
  for (const how of ['close', 'destroy'] as const) {
    const before = openDescriptors();
    const engine = await engineFor(t);
    await engine.apply([{ kind: 'set', spec: tcpSpec([]) }]);
    await crash(t, engine);
    await engine[how]();
    t.same(engine.snapshot(), []);
    await until(() => openDescriptors() <= before);
  }
});

linuxTest('a hanging worker is eventually terminated', async (t) => {
  const before = openDescriptors();
  const engine = await engineFor(t);
  await engine.apply([{ kind: 'set', spec: tcpSpec([]) }]);
  order(3);
  const hangs = engine.apply([]).catch(() => undefined);
  await engine.destroy();
  await hangs;
  order(0);
  await until(() => openDescriptors() <= before);
});

linuxTest('a replacement that dies with its first batch is not missed by close', async (t) => {
  const before = openDescriptors();
  const backoff = { initialMs: 1, maxMs: 1, factor: 1, jitter: 0 };
  order(0);
  const engine = await Pool.start({ module, backoff });
  await engine.apply([{ kind: 'set', spec: tcpSpec([]) }]);
  const onOpened = (): void => {
    listenerOpened.unsubscribe(onOpened);
    // The replacement is in the middle of its first batch.
    order(1);
    closed = engine.close();
  };
  let closed: Promise<void> | undefined;
  listenerOpened.subscribe(onOpened);
  order(1);
  await engine.apply([]).catch(() => undefined);
  await until(() => closed !== undefined);
  await closed;
  await until(() => openDescriptors() <= before);
  t.pass();
});

linuxTest('a probe that fails is named, and nothing is left', async (t) => {
  const before = openDescriptors();
  order(2);
  await t.rejects(Pool.start({ module }), {
    name: 'UnfitError',
    message: 'weather: it rains',
  });
  order(0);
  await until(() => openDescriptors() <= before);
});

linuxTest('a missing module is an error, not a wait', async (t) => {
  const missing = new URL('no-such-worker.ts', import.meta.url);
  await t.rejects(Pool.start({ module: missing }), { code: /MODULE_NOT_FOUND$/ });
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
