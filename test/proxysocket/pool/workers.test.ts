/** Several workers: the kernel spreads clients over them, and seen from outside they are one engine. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import type { Test } from 'tap';
import { dataPlaneFault } from '../../../src/proxysocket/events.ts';
import type { PoolOptions } from '../../../src/proxysocket/pool/pool.ts';
import type { EndpointSpec, Protocol } from '../../../src/proxysocket/spec.ts';
import { linuxTest } from '../../support/linux-sys.ts';
import { CLIENTS, connections, remove, serving, set } from '../../support/pool-rig.ts';
import { collect, freePort, openDescriptors } from '../../support/sockets.ts';
import * as peers from '../../support/tcp-peers.ts';
import { portOf, tcpSpec, udpSpec } from '../../support/tcp-rig.ts';
import { UdpBackend, UdpClient } from '../../support/udp-peers.ts';
import { until } from '../../support/until.ts';

const pair = (t: Test, endpoints: readonly EndpointSpec[], options: PoolOptions = {}) =>
  serving(t, endpoints, { workers: 2, ...options });

linuxTest('clients are spread over the workers, and the others outlive one of them', async (t) => {
  const { pool, port, counters } = await pair(t, [(await peers.echoServer(t)).endpoint]);
  t.equal(pool.kind, 'linux');
  const faults = collect(t, dataPlaneFault);
  for (const lost of [0, 1]) {
    const sockets = await connections(t, port);
    const ends = sockets.map(peers.endOf);
    await pool.loseWorker(lost);
    await until(() => faults.length === lost + 1 && sockets.some(({ destroyed }) => destroyed));
    const left = sockets.filter(({ destroyed }) => !destroyed);
    t.ok(left.length > 0 && left.length < CLIENTS.length, `${left.length} are left`);
    for (const socket of left) {
      t.ok(await peers.echoed(socket, 'two'), 'it continues');
      socket.destroy();
    }
    t.ok((await Promise.all(ends)).includes('ECONNRESET'));
  }
  // No client is refused while there is no worker, and the same socket serves the next one.
  const answers = await Promise.all(CLIENTS.map(() => peers.request(t, port, 'x')));
  t.ok(answers.every((answer) => answer === 'x'));
  for (const socket of await connections(t, port)) socket.destroy();
  t.equal(portOf(pool), port);
  await until(() => counters()?.active === 0);
  t.equal(counters()?.connections, 4 * CLIENTS.length, 'all are counted, by whichever worker');
});

/** The name of the server that a client gets. */
async function ask(t: Test, protocol: Protocol, port: number, client: string): Promise<string> {
  if (protocol === 'TCP') return peers.request(t, port, '', { localAddress: client });
  const socket = await UdpClient.open(t, client);
  return (await socket.ask('one', port)) + (await socket.ask('two', port));
}

for (const protocol of ['TCP', 'UDP'] as const) {
  const what = 'clients with affinity keep their endpoint, whatever their port';
  linuxTest(`${protocol} ${what}`, async (t) => {
    const { pool, counters } = await pair(t, []);
    const serve = async (name: string): Promise<EndpointSpec> =>
      protocol === 'TCP'
        ? (await peers.namedServer(t, name)).endpoint
        : (await UdpBackend.named(t, name)).spec;
    const list = await Promise.all(['a', 'b', 'c', 'd'].map(serve));
    const affinity = { kind: 'clientIP', timeoutSeconds: 60 } as const;
    await pool.apply([set({ ...tcpSpec(list, { affinity }), protocol })]);
    const seen = new Set<string>();
    for (const client of CLIENTS) {
      const asked = [1, 2, 3].map(() => ask(t, protocol, portOf(pool), client));
      const answers = await Promise.all(asked);
      t.equal(new Set(answers).size, 1, client);
      seen.add(answers[0] ?? '');
    }
    t.equal(seen.size, 4);
    t.equal(counters()?.connections, 3 * CLIENTS.length);
  });
}

linuxTest('an address of another program is an error, even if it could be shared', async (t) => {
  const { pool } = await pair(t, []);
  for (const name of ['test/dns:dns', 'test/later:dns']) {
    const port = await freePort();
    const spec = udpSpec([], { name, listen: [{ port }] });
    await pool.apply([set(spec)]);
    t.equal(portOf(pool, name), port);
    await pool.apply([remove(name)]);
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
  const { pool } = await pair(t, []);
  const [echo, other] = [await peers.echoServer(t), await peers.tcpServer(t)];
  const { port } = other;
  await pool.apply([set(tcpSpec([echo.endpoint], { listen: [{ port }] }))]);
  t.match(pool.snapshot()[0]?.listeners, [{ state: 'failed', cause: 'EADDRINUSE' }]);
  await other.kill();
  await until(() => portOf(pool) === port);
  t.equal((await connections(t, port)).length, CLIENTS.length, 'from whichever worker');
});

linuxTest('an address that moves to another service port is never closed', async (t) => {
  const { pool } = await pair(t, []);
  const port = await freePort();
  const at = async (name: string) =>
    set(tcpSpec([(await peers.namedServer(t, name)).endpoint], { name, listen: [{ port }] }));
  const [a, b] = [await at('test/a'), await at('test/b')];
  await pool.apply([a]);
  const over = new AbortController();
  const errors: unknown[] = [];
  const load = CLIENTS.slice(0, 8).map(async (localAddress) => {
    while (!over.signal.aborted)
      await peers
        .request(t, port, '', { localAddress })
        .catch((error: unknown) => errors.push(error));
  });
  for (let round = 0; round < 20; round += 1) {
    await pool.apply([remove('test/a'), b]);
    await pool.apply([remove('test/b'), a]);
  }
  over.abort();
  await Promise.all(load);
  t.same(errors, []);
});

linuxTest('a wildcard address takes the place of a single one, and the reverse', async (t) => {
  const { pool } = await pair(t, []);
  const { endpoint } = await peers.namedServer(t, 'there');
  const port = await freePort();
  for (const address of ['127.0.0.1', '0.0.0.0', '127.0.0.1', '0.0.0.0']) {
    await pool.apply([set(tcpSpec([endpoint], { listen: [{ address, port }] }))]);
    t.match(pool.snapshot()[0]?.listeners, [{ state: 'listening', listen: { address } }]);
    const asked = CLIENTS.map((localAddress) => peers.request(t, port, '', { localAddress }));
    t.ok((await Promise.all(asked)).every((answer) => answer === 'there'));
  }
});

linuxTest('limits are shared by equal parts, and nothing stays open', async (t) => {
  const before = openDescriptors();
  const options = { limits: { maxConnections: 2 } };
  const { pool, port } = await pair(t, [(await peers.echoServer(t)).endpoint], options);
  // All of one address come to the same worker, which has one of the two.
  const [one] = await connections(t, port, ['127.0.0.1']);
  t.equal(await peers.connectionEnd(t, port), 'ECONNRESET');
  one?.destroy();
  await pool.destroy();
  await until(() => openDescriptors() <= before + 2);
});

linuxTest('an endpoint that one worker has reached does not count as failing', async (t) => {
  const gone = peers.endpointAt(await freePort());
  const { pool, port } = await pair(t, [gone]);
  await Promise.all(CLIENTS.map((client) => peers.connectionEnd(t, port, client)));
  const failing = async (): Promise<string[]> => {
    const found = await pool.inspect({ failing: true, maxConnections: 0 });
    return [...(found.failing?.get('test/web:http') ?? [])];
  };
  t.strictSame(await failing(), [`127.0.0.1:${gone.port}`]);
  await peers.tcpServer(t, (socket) => socket.end('x'), '127.0.0.1', gone.port);
  t.equal(await peers.request(t, port, '', { localAddress: CLIENTS[0] ?? '' }), 'x');
  t.strictSame(await failing(), []);
});
