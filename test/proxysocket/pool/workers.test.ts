/** Several workers: the kernel spreads clients over them, and seen from outside they are one engine. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import type { Test } from 'tap';
import { dataPlaneFault } from '../../../src/proxysocket/events.ts';
import type { Engine } from '../../../src/proxysocket/engine.ts';
import type { EngineLimits } from '../../../src/proxysocket/limits.ts';
import { Pool, type PoolOptions } from '../../../src/proxysocket/pool/pool.ts';
import type {
  EndpointSpec,
  EngineChange,
  Protocol,
  ServicePortSpec,
} from '../../../src/proxysocket/spec.ts';
import { linuxTest } from '../../support/linux-sys.ts';
import { collect, freePort, openDescriptors } from '../../support/sockets.ts';
import {
  connectionEnd,
  echoServer,
  endOf,
  endpointAt,
  namedServer,
  request,
  tcpClient,
  tcpServer,
} from '../../support/tcp-peers.ts';
import { portOf, tcpSpec } from '../../support/tcp-rig.ts';
import { UdpBackend, UdpClient } from '../../support/udp-rig.ts';
import { until } from '../../support/until.ts';

const CLIENTS = Array.from({ length: 24 }, (_, n) => `127.0.3.${n + 1}`);
/** Hardly any time between two workers. */
const backoff = { initialMs: 1, maxMs: 1, factor: 1, jitter: 0 };

async function pair(t: Test, options: PoolOptions = {}): Promise<Pool> {
  const pool = await Pool.start({ workers: 2, backoff, ...options });
  t.teardown(() => pool.destroy());
  return pool;
}

const set = (spec: ServicePortSpec): EngineChange => ({ kind: 'set', spec });
const connectionsOf = (engine: Engine): number => engine.snapshot()[0]?.counters.connections ?? 0;

/** A connection from each address, that has been answered once. */
async function connections(t: Test, port: number): Promise<Socket[]> {
  return Promise.all(
    CLIENTS.map(async (localAddress) => {
      const socket = await tcpClient(t, port, '127.0.0.1', localAddress);
      socket.write('x');
      await once(socket, 'data');
      return socket;
    }),
  );
}

linuxTest('clients are spread over the workers, and the others outlive one of them', async (t) => {
  const pool = await pair(t);
  t.equal(pool.kind, 'linux');
  await pool.apply([set(tcpSpec([(await echoServer(t)).endpoint]))]);
  const port = portOf(pool);
  const faults = collect(t, dataPlaneFault);
  for (const lost of [0, 1]) {
    const sockets = await connections(t, port);
    const ends = sockets.map(endOf);
    await pool.loseWorker(lost);
    await until(() => faults.length === lost + 1);
    const cut = sockets.filter(({ destroyed }) => destroyed).length;
    await until(() => sockets.some(({ destroyed }) => destroyed));
    const left = sockets.filter(({ destroyed }) => !destroyed);
    t.ok(left.length > 0 && left.length < CLIENTS.length, `${cut} ${left.length}`);
    for (const socket of left) {
      socket.write('two');
      t.match(String((await once(socket, 'data'))[0]), 'two', 'it continues');
      socket.destroy();
    }
    t.ok((await Promise.all(ends)).includes('ECONNRESET'));
  }
  // No client is refused while there is no worker, and the same socket serves the next one.
  const answers = await Promise.all(CLIENTS.map(() => request(t, port, 'x')));
  t.ok(answers.every((answer) => answer === 'x'));
  for (const socket of await connections(t, port)) socket.destroy();
  t.equal(portOf(pool), port);
  await until(() => pool.snapshot()[0]?.counters.active === 0);
  t.equal(connectionsOf(pool), 4 * CLIENTS.length, 'all are counted, by whichever worker');
  t.equal(pool.snapshot().length, 1);
});

/** The name of the server that a client gets. */
async function ask(t: Test, protocol: Protocol, port: number, client: string): Promise<string> {
  if (protocol === 'TCP') return request(t, port, '', { localAddress: client });
  const socket = await UdpClient.open(t, client);
  return (await socket.ask('one', port)) + (await socket.ask('two', port));
}

for (const protocol of ['TCP', 'UDP'] as const) {
  linuxTest(
    `${protocol} clients with affinity keep their endpoint, whatever their port`,
    async (t) => {
      const pool = await pair(t);
      const serve = async (name: string): Promise<EndpointSpec> =>
        protocol === 'TCP'
          ? (await namedServer(t, name)).endpoint
          : (await UdpBackend.named(t, name)).spec;
      const endpoints = await Promise.all(['a', 'b', 'c', 'd'].map(serve));
      const affinity = { kind: 'clientIP', timeoutSeconds: 60 } as const;
      await pool.apply([set({ ...tcpSpec(endpoints, { affinity }), protocol })]);
      const port = portOf(pool);
      const seen = new Set<string>();
      for (const client of CLIENTS) {
        const answers = await Promise.all([1, 2, 3].map(() => ask(t, protocol, port, client)));
        t.equal(new Set(answers).size, 1, client);
        seen.add(answers[0] ?? '');
      }
      t.equal(seen.size, 4);
      t.equal(connectionsOf(pool), 3 * CLIENTS.length);
    },
  );
}

linuxTest('an address of another program is an error, even if it could be shared', async (t) => {
  const pool = await pair(t);
  for (const name of ['test/dns:dns', 'test/later:dns']) {
    const port = await freePort();
    const spec = { ...tcpSpec([], { name, listen: [{ port }] }), protocol: 'UDP' } as const;
    await pool.apply([set(spec)]);
    t.equal(portOf(pool, name), port);
    await pool.apply([{ kind: 'remove', name }]);
    const other = createSocket({ type: 'udp4', reusePort: true });
    t.teardown(() => other.close());
    other.bind(port, '127.0.0.1');
    await once(other, 'listening');
    await pool.apply([set(spec)]);
    t.match(pool.snapshot(new Set([name]))[0]?.listeners, [
      { state: 'failed', cause: 'EADDRINUSE' },
    ]);
    // Also when workers have been replaced.
    for (const index of [0, 1]) await pool.loseWorker(index);
  }
});

linuxTest('all workers listen once an address that was taken is free', async (t) => {
  const pool = await pair(t);
  const other = createServer().listen(0, '127.0.0.1');
  await once(other, 'listening');
  const port = (other.address() as { port: number }).port;
  const echo = await echoServer(t);
  await pool.apply([set(tcpSpec([echo.endpoint], { listen: [{ port }] }))]);
  t.match(pool.snapshot()[0]?.listeners, [{ state: 'failed', cause: 'EADDRINUSE' }]);
  other.close();
  await until(() => portOf(pool) === port);
  t.equal((await connections(t, port)).length, CLIENTS.length, 'from whichever worker');
});

linuxTest('an address that moves to another service port is never closed', async (t) => {
  const pool = await pair(t);
  const [a, b] = [await namedServer(t, 'a'), await namedServer(t, 'b')];
  const port = await freePort();
  const at = (name: string, server: typeof a) =>
    tcpSpec([server.endpoint], { name, listen: [{ port }] });
  await pool.apply([set(at('test/a', a))]);
  let moves = 0;
  const over = new AbortController();
  const errors: unknown[] = [];
  const load = CLIENTS.slice(0, 8).map(async (client) => {
    while (!over.signal.aborted)
      await request(t, port, '', { localAddress: client }).catch((error: unknown) =>
        errors.push(error),
      );
  });
  for (let round = 0; round < 20; round += 1) {
    await pool.apply([{ kind: 'remove', name: 'test/a' }, set(at('test/b', b))]);
    await pool.apply([{ kind: 'remove', name: 'test/b' }, set(at('test/a', a))]);
    moves += 2;
  }
  over.abort();
  await Promise.all(load);
  t.same(errors, [], `${moves} moves`);
});

linuxTest('a wildcard address takes the place of a single one, and the reverse', async (t) => {
  const pool = await pair(t);
  const { endpoint } = await namedServer(t, 'there');
  const port = await freePort();
  const on = (address: string) => set(tcpSpec([endpoint], { listen: [{ address, port }] }));
  for (const address of ['127.0.0.1', '0.0.0.0', '127.0.0.1', '0.0.0.0']) {
    await pool.apply([on(address)]);
    t.match(pool.snapshot()[0]?.listeners, [{ state: 'listening', listen: { address } }]);
    const answers = await Promise.all(
      CLIENTS.map((client) => request(t, port, '', { localAddress: client })),
    );
    t.ok(answers.every((answer) => answer === 'there'));
  }
});

linuxTest('limits are shared by equal parts, and nothing stays open', async (t) => {
  const before = openDescriptors();
  const limits: Partial<EngineLimits> = { maxConnections: 2 };
  const pool = await pair(t, { limits });
  await pool.apply([set(tcpSpec([(await echoServer(t)).endpoint]))]);
  const port = portOf(pool);
  // All of one address come to the same worker, which has one of the two.
  const one = await tcpClient(t, port);
  one.write('x');
  await once(one, 'data');
  t.equal(await connectionEnd(t, port), 'ECONNRESET');
  one.destroy();
  await pool.destroy();
  await until(() => openDescriptors() <= before + 2);
});

linuxTest('a batch with endpoints for an unknown service port rejects', async (t) => {
  const pool = await pair(t);
  await t.rejects(pool.apply([{ kind: 'endpoints', name: 'd/none', endpoints: [] }]), {
    message: /d\/none/,
  });
});

linuxTest('an endpoint that one worker has reached does not count as failing', async (t) => {
  const pool = await pair(t);
  const endpointPort = await freePort();
  await pool.apply([set(tcpSpec([endpointAt(endpointPort)]))]);
  const port = portOf(pool);
  await Promise.all(CLIENTS.map((client) => connectionEnd(t, port, client)));
  const failing = async (): Promise<string[]> => {
    const found = await pool.inspect({ failing: true, maxConnections: 0 });
    return [...(found.failing?.get('test/web:http') ?? [])];
  };
  t.strictSame(await failing(), [`127.0.0.1:${endpointPort}`]);
  await tcpServer(t, (socket) => socket.end('x'), '127.0.0.1', endpointPort);
  t.equal(await request(t, port, '', { localAddress: CLIENTS[0] ?? '' }), 'x');
  t.strictSame(await failing(), []);
});
