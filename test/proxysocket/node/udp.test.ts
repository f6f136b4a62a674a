import { createSocket, type Socket } from 'node:dgram';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { networkInterfaces } from 'node:os';
import t from 'tap';
import { limitChanged } from '../../../src/proxysocket/events.ts';
import { boundSocket, setBufferSizes } from '../../../src/proxysocket/node/udp/session.ts';
import { readHostAddresses } from '../../../src/proxysocket/node/udp/transport.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { collect, freePort, openDescriptors, settledDescriptors } from '../../support/sockets.ts';
import { endpointAt } from '../../support/tcp-peers.ts';
import { TcpRig, udpScene } from '../../support/tcp-rig.ts';
import { UdpBackend } from '../../support/udp-peers.ts';
import { until } from '../../support/until.ts';

/** Linux serves all of 127.0.0.0/8, so a host with several addresses is easily had. */
const SKIP = process.platform === 'linux' ? false : 'needs several loopback addresses';

const WILDCARD = { address: '0.0.0.0' } as const;

function host(...addresses: string[]) {
  const state = {
    now: [...addresses, '::1'],
    read: () => state.now.map((address) => ({ address, loopback: true })),
  };
  return state;
}

t.test('addresses that come and go are followed', { skip: SKIP }, async (t) => {
  const addresses = host('127.0.0.1');
  const spec = { udpIdleTimeoutMs: 3_600_000, listen: [WILDCARD] };
  const { clock, rig, port, client } = await udpScene(t, { hostAddresses: addresses.read }, spec);
  const from = async (address: string): Promise<string | undefined> => {
    await client.ask('x', port, address);
    return client.replies.at(-1)?.from.split(':')[0];
  };
  const { descriptors } = rig.engine;
  t.equal(descriptors.used, 1);

  addresses.now = ['127.0.0.1', '127.0.0.9'];
  clock.advance(5000);
  await until(() => descriptors.used === 2);
  t.equal(await from('127.0.0.9'), '127.0.0.9');
  t.equal(rig.counters.active, 1);

  addresses.now = ['127.0.0.1'];
  clock.advance(5000);
  await until(() => descriptors.used === 1);
  t.equal(rig.counters.active, 0, 'sessions of an address that is gone end');
  t.equal(await from('127.0.0.9'), '127.0.0.1');
});

t.test('sockets of wildcards are limited, which is reported until they fit', async (t) => {
  const clock = new FakeClock();
  const changes = collect(t, limitChanged);
  const many = ['127.0.1.1', '127.0.1.2', '127.0.1.3'];
  const addresses = host(...many);
  let readings = 0;
  const hostAddresses = () => {
    readings += 1;
    return addresses.read();
  };
  const limits = { udpWildcardSockets: 2 };
  const rig = new TcpRig(t, { clock, limits, hostAddresses });
  const { descriptors } = rig.engine;
  const serve = (name: string, address: string) =>
    rig.serve([], { name, protocol: 'UDP', listen: [{ address }] });
  await serve('plain', '127.0.0.1');
  t.equal(readings, 0, 'addresses are read only for a wildcard listener');
  t.equal(clock.pending, 0);
  const before = await settledDescriptors();
  await serve('one', '0.0.0.0');
  t.equal(descriptors.used, SKIP ? 0 : 2);
  await serve('two', '0.0.0.0');
  await serve('six', '::');
  t.equal(clock.pending, 1, 'one timer for all of them');
  t.equal(readings, 1, 'and one reading');
  const limit = { limit: 'udp-wildcard-sockets', value: 2 };
  t.same(changes, [{ ...limit, reached: true }]);

  for (const [now, reached] of [
    [many.slice(1), false],
    [many, true],
  ] as const) {
    addresses.now = [...now];
    clock.advance(5000);
    t.same(changes.at(-1), { ...limit, reached });
  }
  t.equal(readings, 3);
  await rig.remove('one');
  t.equal(changes.length, 3);
  await rig.remove('two');
  t.match(changes[3], { reached: false }, 'with the last listener that lacked some');
  await rig.remove('six');
  t.equal(clock.pending, 0);
  t.equal(descriptors.used, 0);
  // Windows closes sockets some turns later.
  await until(() => openDescriptors() <= before);
});

t.test('sockets of wildcards leave descriptors to listeners', { skip: SKIP }, async (t) => {
  const many = Array.from({ length: 40 }, (_, index) => `127.0.1.${index + 1}`);
  const limits = { reservedDescriptors: 0 };
  const options = { hostAddresses: host(...many).read, descriptorLimit: 8, limits, endpoints: [] };
  const { rig } = await udpScene(t, options, { listen: [WILDCARD] });
  t.equal(rig.engine.descriptors.used, 7);
});

t.test('datagrams from port 0 are dropped, and errors are counted; it continues', async (t) => {
  const sockets: Socket[] = [];
  const onSocket = (message: unknown): void => {
    sockets.push((message as { socket: Socket }).socket);
  };
  subscribe('udp.socket', onSocket);
  const { rig, port, client } = await udpScene(t);
  unsubscribe('udp.socket', onSocket);
  const socket = sockets.find((each) => each.address().port === port);
  // No ordinary socket can send from port 0, but a packet on the wire can say so.
  const remote = { address: '127.0.0.1', family: 'IPv4' as const, port: 0, size: 1 };
  socket?.emit('message', Buffer.from('x'), remote);
  t.match(rig.counters, { datagramsDropped: 1, connections: 0 });
  // As Windows does when an earlier answer found no socket.
  socket?.emit('error', Object.assign(new Error('recvmsg ECONNRESET'), { code: 'ECONNRESET' }));
  t.equal(rig.counters.datagramsDropped, 2);
  t.equal(await client.ask('still there?', port), 'still there?');
});

t.test('a size of socket buffers that the system does not grant is no error', async (t) => {
  const socket = boundSocket(4, '127.0.0.1', 0);
  t.teardown(() => socket.close());
  setBufferSizes(socket, 2 ** 30);
  t.ok(socket.getRecvBufferSize() > 0);
  const unbound = createSocket('udp4');
  t.teardown(() => unbound.close());
  t.doesNotThrow(() => setBufferSizes(unbound, 65_536), 'nor is one that has no descriptor yet');
});

t.test('the addresses of the host are its unicast addresses without zones', async (t) => {
  const found = readHostAddresses();
  t.ok(found.includes('127.0.0.1'));
  t.notOk(found.some((address) => address.startsWith('fe80')));
  const listed = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  t.ok(listed.length >= found.length);
});

t.test('a UDP session with itself moves on to another endpoint', async (t) => {
  const good = await UdpBackend.named(t, 'good');
  const gone = endpointAt(await freePort());
  const { rig, port, client } = await udpScene(t, { endpoints: [gone, good.spec] });
  let backends = 0;
  // Node reports every socket there before it is used.
  const onSocket = (message: unknown): void => {
    const { socket } = message as { socket: Socket };
    const bind = socket.bind.bind(socket) as (options: object) => Socket;
    const isFirst = (backends += 1) === 1;
    socket.bind = (options) =>
      bind(isFirst ? { ...(options as object), port: gone.port } : (options as object));
  };
  subscribe('udp.socket', onSocket);
  t.teardown(() => unsubscribe('udp.socket', onSocket));
  t.equal(await client.ask('x', port), 'good');
  t.match(rig.counters, { active: 1, retries: 1, connectErrors: { refused: 1 } });
  t.equal(backends, 2);
});
