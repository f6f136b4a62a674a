/** A UDP endpoint of this host that is gone, and whose port the kernel happens to choose for our side. */
import { channel } from 'node:diagnostics_channel';
import type { Socket as UdpSocket } from 'node:dgram';
import t from 'tap';
import { freePort } from '../support/sockets.ts';
import { endpointAt } from '../support/tcp-peers.ts';
import { UdpBackend, udpScene } from '../support/udp-rig.ts';

t.test('a session with itself moves on to another endpoint', async (t) => {
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
