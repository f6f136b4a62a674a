/** Endpoints of this host that are gone, and whose port the kernel happens to choose for our side. */
import { channel } from 'node:diagnostics_channel';
import type { Socket as UdpSocket } from 'node:dgram';
import t, { type Test } from 'tap';
import {
  connectFailed,
  endpointPicked,
  type EndpointPicked,
} from '../../src/proxysocket/events.ts';
import { collect, freePort } from '../support/sockets.ts';
import { connectionEnd, namedServer, request } from '../support/tcp-peers.ts';
import { TcpRig } from '../support/tcp-rig.ts';
import { UdpBackend, udpScene } from '../support/udp-rig.ts';
import { until } from '../support/until.ts';

const TRAFFIC = { internal: true, external: true } as const;

/** Calls back for every socket of a kind before it is used, as Node reports it on a channel. */
function onSocket(t: Test, name: string, onMessage: (message: unknown) => void): void {
  channel(name).subscribe(onMessage);
  t.teardown(() => channel(name).unsubscribe(onMessage));
}

interface TcpHandle {
  bind(host: string, port: number): number;
  connect: (this: TcpHandle, ...args: unknown[]) => number;
}

/** What both ways to connect are made of. */
function tcpHandles(): { readonly prototype: TcpHandle } {
  const internals = process as unknown as {
    binding(name: string): { TCP: { prototype: TcpHandle } };
  };
  return internals.binding('tcp_wrap').TCP;
}

/** Lets connections of the proxy to a port come from the same port, as the kernel does by chance. */
function fromSamePort(t: Test, port: number): void {
  let isNext = false;
  const onPicked = ({ endpoint }: EndpointPicked): void => {
    isNext = endpoint === `127.0.0.1:${port}`;
  };
  endpointPicked.subscribe(onPicked);
  t.teardown(() => endpointPicked.unsubscribe(onPicked));
  const { prototype } = tcpHandles();
  const { connect: connectHandle } = prototype;
  prototype.connect = function (this: TcpHandle, ...args) {
    if (isNext) this.bind('127.0.0.1', port);
    isNext = false;
    return connectHandle.apply(this, args);
  };
  t.teardown(() => {
    prototype.connect = connectHandle;
  });
}

t.test('TCP: a connection to itself is a refused one', async (t) => {
  const rig = new TcpRig(t);
  const failed = collect(t, connectFailed);
  const gone = { address: '127.0.0.1', port: await freePort(), ...TRAFFIC };
  const good = await namedServer(t, 'good');
  fromSamePort(t, gone.port);

  const port = await rig.serve([gone, good.endpoint]);
  t.equal(await request(t, port), 'good');
  t.match(failed, [{ cause: 'refused', endpoint: `127.0.0.1:${gone.port}`, error: /itself/ }]);
  t.match(rig.counters, { connections: 1, retries: 1, connectErrors: { refused: 1 } });

  await rig.endpoints([gone]);
  t.equal(await connectionEnd(t, port), 'ECONNRESET');
  await until(() => rig.counters.rejectedConnectFailed === 1);
  t.equal(rig.counters.bytesOut, 4, 'no one hears his own words');
});

t.test('UDP: a session with itself moves on to another endpoint', async (t) => {
  const good = await UdpBackend.named(t, 'good');
  const gone = { address: '127.0.0.1', port: await freePort(), ...TRAFFIC };
  const { owner, port, client } = await udpScene(t, { endpoints: [gone, good.spec] });

  let backends = 0;
  onSocket(t, 'udp.socket', (message) => {
    const { socket } = message as { socket: UdpSocket };
    const bind = socket.bind.bind(socket) as (options: object) => UdpSocket;
    const isFirst = (backends += 1) === 1;
    socket.bind = (options) =>
      bind(isFirst ? { ...(options as object), port: gone.port } : (options as object));
  });
  t.equal(await client.ask('x', port), 'good');
  t.match(owner.counters, { active: 1, retries: 1, connectErrors: { refused: 1 } });
  t.equal(backends, 2);
});
