import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import t from 'tap';
import {
  connectionEnd,
  echoServer,
  openDescriptors,
  request,
  settledDescriptors,
  tcpServer,
} from '../../support/tcp-peers.ts';
import { TcpRig, WAYS } from '../../support/tcp-rig.ts';
import { until } from '../../support/until.ts';

const CONNECTIONS = 10_000;
const AT_ONCE = 200;

/** Ways to treat a proxy, from well to badly. Each resolves when the client's socket is closed. */
const BEHAVIOURS: readonly ((port: number) => Promise<unknown>)[] = [
  async (port) => {
    const socket = open(port);
    const closed = once(socket, 'close');
    socket.end('hello');
    socket.resume();
    return closed;
  },
  // Vanishes as soon as it is connected, with a FIN or with a reset.
  async (port) => leave(port, (socket) => socket.destroy()),
  async (port) => leave(port, (socket) => socket.resetAndDestroy()),
  // Sends, and leaves without reading the answer.
  async (port) =>
    leave(port, (socket) => {
      socket.write(Buffer.alloc(10_000));
      socket.destroy();
    }),
  async (port) =>
    leave(port, (socket) => {
      socket.pause();
      socket.write(Buffer.alloc(200_000), () => socket.resetAndDestroy());
    }),
  // Does not even wait for the connection.
  async (port) => {
    const socket = open(port);
    const closed = once(socket, 'close');
    setImmediate(() => socket.destroy());
    return closed;
  },
];

function open(port: number): Socket {
  const socket = connect({ host: '127.0.0.1', port });
  socket.on('error', () => undefined);
  return socket;
}

async function leave(port: number, how: (socket: Socket) => void): Promise<unknown> {
  const socket = open(port);
  const closed = once(socket, 'close');
  socket.once('connect', () => how(socket));
  return closed;
}

for (const { way, documentedOnly } of WAYS) {
  t.test(`${way}: ${CONNECTIONS} connections of all manners leave nothing behind`, async (t) => {
    const rig = new TcpRig(t, { documentedOnly });
    const server = await echoServer(t);
    const port = await rig.serve([server.endpoint]);
    await request(t, port, 'warm');
    await until(() => rig.counters.active === 0 && server.open === 0);
    const before = await settledDescriptors();

    for (let done = 0; done < CONNECTIONS; done += AT_ONCE) {
      await Promise.all(
        Array.from({ length: AT_ONCE }, async (_, index) =>
          BEHAVIOURS[index % BEHAVIOURS.length]?.(port),
        ),
      );
    }
    await until(
      () => rig.counters.active === 0 && server.open === 0 && openDescriptors() === before,
    );
    t.equal(openDescriptors(), before);
    t.equal(await request(t, port, 'still fine'), 'still fine');
    t.ok(rig.counters.connections > CONNECTIONS / 2, 'most were accepted');
  });
}

for (const { way, documentedOnly } of WAYS) {
  t.test(`${way}: clients that are not served leave nothing behind`, async (t) => {
    const rig = new TcpRig(t, { documentedOnly, limits: { maxConnections: 0 } });
    const none = await rig.serve([], { name: 'none' });
    const limited = await rig.serve([(await echoServer(t)).endpoint], { name: 'limited' });
    const outside = await rig.serve([], {
      name: 'outside',
      listen: [{ sourceRanges: ['192.0.2.0/24'] }],
    });
    const before = await settledDescriptors();
    for (let round = 0; round < 10; round += 1) {
      const ports = Array.from({ length: 50 }, () => [none, limited, outside]).flat();
      const ends = await Promise.all(ports.map(async (port) => connectionEnd(t, port)));
      for (const end of ends) if (end !== 'ECONNRESET') t.fail(end);
    }
    await until(() => openDescriptors() === before);
    t.match(rig.snapshot('none').counters, { rejectedLimit: 500, active: 0 });
    t.match(rig.snapshot('limited').counters, { rejectedLimit: 500, active: 0 });
    t.match(rig.snapshot('outside').counters, { rejectedSource: 500, active: 0 });
  });
}

t.test('half-open clients that send nothing end with the half-close limit', async (t) => {
  const rig = new TcpRig(t, { limits: { halfCloseTimeoutMs: 200 } });
  const server = await tcpServer(t);
  const port = await rig.serve([server.endpoint]);
  const before = await settledDescriptors();
  const clients = Array.from({ length: 100 }, () => open(port));
  for (const client of clients) client.end();
  await until(() => rig.counters.halfCloseTimeouts === 100);
  await server.kill();
  for (const client of clients) client.destroy();
  // The server's own listener is gone, too.
  await until(() => openDescriptors() === before - 1);
  t.equal(rig.counters.active, 0);
});
