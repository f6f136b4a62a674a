/** The proxier with the engine on Node's sockets: bytes from a client to an endpoint and back. */
import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import t, { type Test } from 'tap';
import type { DeepPartial, Service } from '../../src/api/generated/localv1/api.ts';
import { AddressPortal } from '../../src/portal/address.ts';
import { Proxier } from '../../src/proxier/proxier.ts';
import { createNodeEngine } from '../../src/proxysocket/node/engine.ts';
import { endpoint, entry, ports, TestView } from '../support/messages.ts';
import { until } from '../support/until.ts';

const skip =
  process.platform === 'darwin'
    ? 'only on linux and windows, which have all of 127.0.0.0/8'
    : false;

/** Addresses of this test alone, so that fixed ports are free on them. */
const OWN = `127.${64 + (process.pid & 63)}.${(process.pid >> 6) & 255}`;
const own = (last: number): string => `${OWN}.${last}`;

/** A TCP endpoint that greets with its name and sends back what it gets. */
async function tcpEndpoint(t: Test, name: string): Promise<number> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => socket.destroy());
    socket.write(`${name}\n`);
    socket.pipe(socket);
  });
  await listening(server);
  t.teardown(() => server.close());
  return (server.address() as AddressInfo).port;
}

async function listening(server: Server, port = 0, address = '127.0.0.1'): Promise<void> {
  server.listen(port, address);
  await once(server, 'listening');
}

/** A UDP endpoint that answers with its name. */
async function udpEndpoint(t: Test, name: string): Promise<number> {
  const socket = createSocket('udp4', (_, from) => socket.send(name, from.port, from.address));
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  t.teardown(() => socket.close());
  return socket.address().port;
}

/** A connected client that has read the endpoint's name. */
async function dial(
  t: Test,
  address: string,
  port: number,
): Promise<{ socket: Socket; name: string }> {
  const socket = connect(port, address);
  t.teardown(() => socket.destroy());
  const [greeting] = (await once(socket, 'data')) as [Buffer];
  return { socket, name: greeting.toString().trim() };
}

async function echo(socket: Socket, text: string): Promise<string> {
  socket.write(text);
  const [answer] = (await once(socket, 'data')) as [Buffer];
  return answer.toString();
}

/** Why a connection does not come about, or ends without a byte. */
async function refusal(address: string, port: number): Promise<string> {
  const socket = connect(port, address);
  try {
    await once(socket, 'close');
    return 'closed';
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? 'unknown';
  }
}

async function ask(socket: UdpSocket, port: number, address: string): Promise<string> {
  socket.send('?', port, address);
  const [answer] = (await once(socket, 'message')) as [Buffer];
  return answer.toString();
}

function rig(t: Test) {
  const portal = new AddressPortal({ nodePortAddresses: [own(9)] });
  const engine = createNodeEngine();
  const proxier = new Proxier({ engine, portal });
  const view = new TestView();
  t.teardown(async () => {
    await proxier.close();
    await engine.destroy();
    await portal.close();
  });
  return { engine, proxier, view };
}

/** A service with endpoints on 127.0.0.1, each with a port of its own. */
function on(
  address: string,
  portText: string,
  targets: readonly number[],
  more: DeepPartial<Service> = {},
) {
  const [name = ''] = portText.split(' ');
  const endpoints = targets.map((port) => {
    const portOverrides = [{ name: name === '-' ? '' : name, port }];
    return [`pod-${port}`, endpoint('127.0.0.1', { portOverrides })] as const;
  });
  const ips = { clusterIPs: { v4: [address] } };
  return entry('d/web', { ips, ports: ports(portText), ...more }, Object.fromEntries(endpoints));
}

t.test(
  'T7 (kept): established connections outlive changes and the end of their service',
  { skip },
  async (t) => {
    const { proxier, view } = rig(t);
    const a = await tcpEndpoint(t, 'a');
    await proxier.sync(view.set(on(own(1), 'http TCP 8080 0@30080', [a])));
    const { socket, name } = await dial(t, own(1), 8080);
    t.equal(name, 'a');
    t.equal((await dial(t, own(9), 30_080)).name, 'a', 'through the node port');

    await proxier.sync(view.set(on(own(1), 'http TCP 8081 0', [a])));
    t.equal(await echo(socket, 'one'), 'one');
    t.equal(await refusal(own(1), 8080), 'ECONNREFUSED');
    t.equal(await refusal(own(9), 30_080), 'ECONNREFUSED');
    t.equal((await dial(t, own(1), 8081)).name, 'a');

    await proxier.sync(view.remove('d/web'));
    t.equal(await echo(socket, 'two'), 'two');
    t.equal(await refusal(own(1), 8081), 'ECONNREFUSED');
  },
);

t.test('endpoint changes touch no listener', { skip }, async (t) => {
  const { proxier, view, engine } = rig(t);
  const [a, b] = [await tcpEndpoint(t, 'a'), await tcpEndpoint(t, 'b')];
  const names = async (count: number): Promise<string[]> => {
    const all: string[] = [];
    for (let n = 0; n < count; n += 1) all.push((await dial(t, own(2), 8080)).name);
    return all.sort();
  };
  await proxier.sync(view.set(on(own(2), 'http TCP 8080 0', [a, b])));
  t.same(await names(4), ['a', 'a', 'b', 'b']);
  const first = await dial(t, own(2), 8080);
  await proxier.sync(view.set(on(own(2), 'http TCP 8080 0', [b])));
  t.same(await names(3), ['b', 'b', 'b']);
  t.equal(await echo(first.socket, 'still here'), 'still here');
  await proxier.sync(view.set(on(own(2), 'http TCP 8080 0', [])));
  t.equal(await refusal(own(2), 8080), 'ECONNRESET');
  await proxier.sync(view.set(on(own(2), 'http TCP 8080 0', [a])));
  t.same(await names(2), ['a', 'a']);
  t.equal(engine.snapshot()[0]?.listeners.length, 1);
});

t.test(
  'V18 (different): UDP sessions end with their endpoint, and another one answers the client',
  { skip },
  async (t) => {
    const { proxier, view } = rig(t);
    const [a, b] = [await udpEndpoint(t, 'a'), await udpEndpoint(t, 'b')];
    const client = createSocket('udp4');
    t.teardown(() => client.close());
    await proxier.sync(view.set(on(own(4), '- UDP 5353 0', [a])));
    t.equal(await ask(client, 5353, own(4)), 'a');
    await proxier.sync(view.set(on(own(4), '- UDP 5353 0', [b])));
    t.equal(await ask(client, 5353, own(4)), 'b');
  },
);

t.test(
  'a listener that cannot bind is reported, does not stop others, and opens later',
  { skip },
  async (t) => {
    const { proxier, view } = rig(t);
    const a = await tcpEndpoint(t, 'a');
    const other = createServer();
    await listening(other, 8080, own(7));
    const mixed = on(own(7), 'http TCP 8080 0', [a], {
      ips: { clusterIPs: { v4: [own(7), own(8), '192.0.2.1'] } },
    });
    await proxier.sync(view.set(mixed));
    t.match(proxier.snapshot().problems, [
      { code: 'KPNG_LISTEN_ADDRESS_IN_USE', count: 1, servicePort: 'd/web:http' },
      { code: 'KPNG_LISTEN_ADDRESS_NOT_AVAILABLE', count: 1, message: /192\.0\.2\.1:8080\/TCP/ },
    ]);
    t.equal((await dial(t, own(8), 8080)).name, 'a');
    other.close();
    await until(() => proxier.snapshot().problems.length === 1);
    t.equal((await dial(t, own(7), 8080)).name, 'a');
  },
);
