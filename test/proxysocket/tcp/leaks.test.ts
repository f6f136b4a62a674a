import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import t from 'tap';
import { connectionEnd, echoServer, request, tcpServer } from '../../support/tcp-peers.ts';
import { TcpRig, WAYS } from '../../support/tcp-rig.ts';
import { until } from '../../support/until.ts';
import { openDescriptors, settledDescriptors } from '../../support/sockets.ts';

const AT_ONCE = 200;
/** More than a relay reads at once. */
const DATA = Buffer.alloc(70_000);

interface Place {
  readonly host: string;
  readonly port: number;
}

/** Ways to treat a proxy, from well to badly. Each resolves when the client's socket is closed. */
const BEHAVIOURS: readonly ((place: Place) => Promise<unknown>)[] = [
  async (place) => {
    const socket = open(place);
    const closed = once(socket, 'close');
    socket.end('hello');
    socket.resume();
    return closed;
  },
  // Vanishes as soon as it is connected, with a FIN or with a reset.
  async (place) => leave(place, (socket) => socket.destroy()),
  async (place) => leave(place, (socket) => socket.resetAndDestroy()),
  // Sends, and leaves without reading the answer.
  async (place) =>
    leave(place, (socket) => {
      socket.write(DATA.subarray(0, 10_000));
      socket.destroy();
    }),
  async (place) =>
    leave(place, (socket) => {
      socket.pause();
      socket.write(DATA, () => socket.resetAndDestroy());
    }),
  // Does not even wait for the connection.
  async (place) => {
    const socket = open(place);
    const closed = once(socket, 'close');
    setImmediate(() => socket.destroy());
    return closed;
  },
];

function open(place: Place): Socket {
  const socket = connect(place);
  socket.on('error', () => undefined);
  return socket;
}

async function leave(place: Place, how: (socket: Socket) => void): Promise<unknown> {
  const socket = open(place);
  const closed = once(socket, 'close');
  socket.once('connect', () => how(socket));
  return closed;
}

// The documented way shares nearly everything with the other one.
for (const { way, documentedOnly } of WAYS) {
  const connections = process.platform === 'win32' ? 600 : documentedOnly ? 2000 : 10_000;
  t.test(`${way}: ${connections} connections of all manners leave nothing behind`, async (t) => {
    // A slow machine takes its time for so many at once; an attempt that is given up is not looked for here.
    const rig = new TcpRig(t, { documentedOnly, limits: { connectTimeoutsMs: [20_000] } });
    // Several addresses on both sides: the kernel is slow to find a free port when many connections
    // to one place have been closed a moment ago.
    const hosts = Array.from({ length: 8 }, (_, index) => `127.0.0.${index + 1}`);
    const servers = await Promise.all(hosts.map(async (host) => echoServer(t, host)));
    await rig.serve(
      servers.map(({ endpoint }) => endpoint),
      { listen: hosts.map((address) => ({ address })) },
    );
    const places = hosts.map((host, index) => ({ host, port: rig.port('test/web:http', index) }));
    const isQuiet = (): boolean =>
      rig.counters.active === 0 && servers.every((server) => server.open === 0);
    await request(t, rig.port(), 'warm');
    await until(isQuiet);
    const before = await settledDescriptors();

    for (let done = 0; done < connections; done += AT_ONCE) {
      await Promise.all(
        Array.from({ length: AT_ONCE }, async (_, index) => {
          const place = places[index % places.length];
          if (place !== undefined) await BEHAVIOURS[index % BEHAVIOURS.length]?.(place);
        }),
      );
    }
    await until(() => isQuiet() && openDescriptors() === before);
    t.equal(openDescriptors(), before);
    t.equal(await request(t, rig.port(), 'still fine'), 'still fine');
    t.ok(rig.counters.connections > connections / 2, 'most were accepted');
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
    for (let round = 0; round < 4; round += 1) {
      const ports = Array.from({ length: 50 }, () => [none, limited, outside]).flat();
      const ends = await Promise.all(ports.map(async (port) => connectionEnd(t, port)));
      for (const end of ends) if (end !== 'ECONNRESET') t.fail(end);
    }
    await until(() => openDescriptors() === before);
    t.match(rig.snapshot('none').counters, { rejectedLimit: 200, active: 0 });
    t.match(rig.snapshot('limited').counters, { rejectedLimit: 200, active: 0 });
    t.match(rig.snapshot('outside').counters, { rejectedSource: 200, active: 0 });
  });
}

t.test('half-open clients that send nothing end with the half-close limit', async (t) => {
  const rig = new TcpRig(t, { limits: { halfCloseTimeoutMs: 200 } });
  const server = await tcpServer(t);
  const port = await rig.serve([server.endpoint]);
  const before = await settledDescriptors();
  const clients = Array.from({ length: 100 }, () => open({ host: '127.0.0.1', port }));
  for (const client of clients) client.end();
  await until(() => rig.counters.halfCloseTimeouts === 100);
  await server.kill();
  for (const client of clients) client.destroy();
  // The server's own listener is gone, too.
  await until(() => openDescriptors() === before - 1);
  t.equal(rig.counters.active, 0);
});
