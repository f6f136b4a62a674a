/** Endpoints of this host that are gone, and whose port the kernel happens to choose for our side. */
import { channel } from 'node:diagnostics_channel';
import type { Socket as UdpSocket } from 'node:dgram';
import { Socket } from 'node:net';
import t from 'tap';
import { connectFailed } from '../../src/proxysocket/events.ts';
import { collect, freePort } from '../support/sockets.ts';
import { endpointAt, namedServer, request } from '../support/tcp-peers.ts';
import { TcpRig } from '../support/tcp-rig.ts';
import { UdpBackend, udpScene } from '../support/udp-rig.ts';

t.test('a UDP session with itself moves on to another endpoint', async (t) => {
  const good = await UdpBackend.named(t, 'good');
  const gone = endpointAt(await freePort());
  const { owner, port, client } = await udpScene(t, { endpoints: [gone, good.spec] });
  let backends = 0;
  // Node reports every socket there before it is used.
  const onSocket = (message: unknown): void => {
    const { socket } = message as { socket: UdpSocket };
    const bind = socket.bind.bind(socket) as (options: object) => UdpSocket;
    const isFirst = (backends += 1) === 1;
    socket.bind = (options) =>
      bind(isFirst ? { ...(options as object), port: gone.port } : (options as object));
  };
  channel('udp.socket').subscribe(onSocket);
  t.teardown(() => channel('udp.socket').unsubscribe(onSocket));
  t.equal(await client.ask('x', port), 'good');
  t.match(owner.counters, { active: 1, retries: 1, connectErrors: { refused: 1 } });
  t.equal(backends, 2);
});

const onLinux = { skip: process.platform !== 'linux' && 'only on linux' };

t.test('a TCP connection to itself is a refused one', onLinux, async (t) => {
  const rig = new TcpRig(t);
  const failed = collect(t, connectFailed);
  const good = await namedServer(t, 'good');
  const gone = endpointAt(await freePort());
  const port = await rig.serve([gone, good.endpoint]);
  const connect = Reflect.get(Socket.prototype, 'connect') as (given: unknown) => Socket;
  t.teardown(() => Object.assign(Socket.prototype, { connect }));
  Object.assign(Socket.prototype, {
    // Called by `net.connect`, with its arguments as a list.
    connect(this: Socket, given: [{ port: number; localPort?: number }]): Socket {
      if (given[0].port === gone.port) given[0].localPort = gone.port;
      return connect.call(this, given);
    },
  });
  t.equal(await request(t, port), 'good');
  t.match(failed, [{ cause: 'refused', endpoint: `127.0.0.1:${gone.port}`, error: /itself/ }]);
  t.match(rig.counters, { retries: 1, connectErrors: { refused: 1 } });
});
