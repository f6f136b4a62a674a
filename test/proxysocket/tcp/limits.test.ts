import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { createInterface } from 'node:readline';
import t from 'tap';
import { processDescriptorLimit } from '../../../src/proxysocket/core/descriptors.ts';
import { limitChanged, rejected } from '../../../src/proxysocket/events.ts';
import {
  connectionEnd,
  echoServer,
  endOf,
  kernelSockets,
  readAll,
  request,
  tcpClient,
  tcpServer,
} from '../../support/tcp-peers.ts';
import { TcpRig, WAYS } from '../../support/tcp-rig.ts';
import { until } from '../../support/until.ts';
import { collect } from '../../support/sockets.ts';

for (const { way, documentedOnly } of WAYS) {
  t.test(`${way}: above the limit of connections new ones are reset`, async (t) => {
    const rig = new TcpRig(t, { documentedOnly, limits: { maxConnections: 3 } });
    const changes = collect(t, limitChanged);
    const refused = collect(t, rejected);
    const server = await echoServer(t);
    const port = await rig.serve([server.endpoint]);
    const clients: Socket[] = [];
    for (let index = 0; index < 3; index += 1) clients.push(await tcpClient(t, port));
    await until(() => rig.counters.active === 3);
    t.same(changes, []);
    t.equal(await connectionEnd(t, port), 'ECONNRESET');
    t.equal(await connectionEnd(t, port), 'ECONNRESET');
    t.match(rig.counters, { connections: 5, active: 3, rejectedLimit: 2 });
    t.match(refused, [{ reason: 'limit' }, { reason: 'limit' }]);
    t.same(changes, [{ limit: 'max-connections', value: 3, reached: true }], 'told once');

    clients[0]?.end();
    await until(() => rig.counters.active === 2);
    t.same(changes[1], { limit: 'max-connections', value: 3, reached: false });
    t.equal(await request(t, port, 'room again'), 'room again');
    t.equal(server.sockets.length, 4, 'endpoints see nothing of those that were reset');
  });
}

t.test('the limit counts connections of all service ports', async (t) => {
  const rig = new TcpRig(t, { limits: { maxConnections: 1 } });
  const server = await echoServer(t);
  const one = await rig.serve([server.endpoint], { name: 'one' });
  const two = await rig.serve([server.endpoint], { name: 'two' });
  const client = await tcpClient(t, one);
  await until(() => rig.snapshot('one').counters.active === 1);
  t.equal(await connectionEnd(t, two), 'ECONNRESET');
  client.end();
  await until(() => rig.snapshot('one').counters.active === 0);
  t.equal(await request(t, two, 'x'), 'x');
});

t.test('the reserve of descriptors is not touched', async (t) => {
  // Two relays of two descriptors each; the listener has its own.
  const reservedDescriptors = processDescriptorLimit() - 6;
  const rig = new TcpRig(t, { limits: { reservedDescriptors } });
  const changes = collect(t, limitChanged);
  const port = await rig.serve([(await echoServer(t)).endpoint]);
  const clients = [await tcpClient(t, port), await tcpClient(t, port)];
  await until(() => rig.counters.active === 2);
  t.equal(await connectionEnd(t, port), 'ECONNRESET');
  t.match(rig.counters, { rejectedLimit: 1 });
  t.match(changes, [{ limit: 'reserved-descriptors', value: 5, reached: true }]);
  clients[0]?.destroy();
  await until(() => rig.counters.active === 1);
  t.match(changes[1], { limit: 'reserved-descriptors', reached: false });
  t.equal(await request(t, port, 'x'), 'x');
});

// A shell limits the descriptors of a process. Windows has no such limit.
const NO_LIMIT = process.platform === 'win32' && 'only on linux';

for (const { way } of WAYS) {
  const name = `${way}: running out of descriptors loses connections, not the process`;
  t.test(name, { skip: NO_LIMIT }, async (t) => {
    const child = spawn(
      '/bin/sh',
      ['-c', 'ulimit -n 60 && exec "$0" "$@"', process.execPath, ...childArgs(way)],
      { stdio: ['pipe', 'pipe', 'inherit'] },
    );
    t.teardown(() => child.kill('SIGKILL'));
    const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
    const port = Number((await lines.next()).value);

    // Each takes one descriptor in the child, which has about thirty left; nothing limits them.
    const clients = await Promise.all(
      Array.from({ length: 80 }, async () => tcpClient(t, port).catch(() => undefined)),
    );
    const ends = clients.map(async (client) => (client === undefined ? 'refused' : endOf(client)));
    t.match(await Promise.race(ends), /ECONNRESET|FIN|refused/);
    for (const client of clients) client?.destroy();

    let answer = '';
    while (answer !== 'alive?') {
      answer = await request(t, port, 'alive?').catch(() => 'not yet');
    }
    child.stdin.end();
    const counters = JSON.parse(String((await lines.next()).value)) as Record<string, number>;
    t.equal(counters['active'], 0);
    t.equal((await once(child, 'exit'))[0], 0);
  });
}

t.test(
  'keepalive runs on both sides of a relay',
  { skip: process.platform !== 'linux' && 'only on linux' },
  async (t) => {
    for (const { documentedOnly } of WAYS) {
      const rig = new TcpRig(t, { documentedOnly });
      const server = await tcpServer(t);
      const port = await rig.serve([server.endpoint]);
      const client = await tcpClient(t, port);
      const socket = await server.next();
      // Other timers may come first.
      await until(() => timer(port, client.localPort) === 2);
      await until(() => timer(socket.remotePort, server.port) === 2);
      client.end();
      socket.end();
      await readAll(client);
    }
  },
);

function childArgs(way: string): string[] {
  return [new URL('../../support/tcp-few-descriptors.ts', import.meta.url).pathname, way];
}

/** What the kernel waits for on the socket with these ports. */
function timer(local: number | undefined, remote: number | undefined): number | undefined {
  return kernelSockets().find(
    ({ localPort, remotePort }) => localPort === local && remotePort === remote,
  )?.timer;
}
