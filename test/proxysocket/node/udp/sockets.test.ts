import { createSocket } from 'node:dgram';
import { networkInterfaces } from 'node:os';
import t, { type Test } from 'tap';
import { NodeFront, NodeUdpTransport } from '../../../../src/proxysocket/node/udp/transport.ts';
import {
  HostAddressWatch,
  readHostAddresses,
} from '../../../../src/proxysocket/node/udp/host-addresses.ts';
import type { NodeUdpSession } from '../../../../src/proxysocket/node/udp/session.ts';
import { Sessions } from '../../../../src/proxysocket/udp/sessions.ts';
import type { FrontOwner } from '../../../../src/proxysocket/udp/transport.ts';
import {
  askBuffers,
  boundSocket,
  sendQueueFull,
} from '../../../../src/proxysocket/node/udp/socket.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { UdpBackend, UdpClient, UdpRig } from '../../../support/udp-rig.ts';
import { until } from '../../../support/until.ts';

/** A front on a socket of the test, whose clients are served by the backend. */
async function newFront(t: Test) {
  const backend = await UdpBackend.start(t);
  const rig = new UdpRig(t);
  const service = rig.service([backend.spec]);
  const socket = await boundSocket(4, '127.0.0.1', 0);
  const transport = new NodeUdpTransport(rig);
  const sessions = new Sessions<NodeUdpSession>(rig, transport);
  const owner: FrontOwner<NodeUdpSession> = {
    traffic: 'internal',
    begin: (front, client) => sessions.begin(front, service, client),
    dropped: () => (service.counters.datagramsDropped += 1),
    endAll: (list) => sessions.endAll(list),
  };
  const front = new NodeFront(socket, 4, owner, 65_536);
  t.teardown(() => front.close());
  return { counters: service.counters, sessions, socket };
}

t.test('a datagram from port 0, which cannot be answered, is dropped', async (t) => {
  const { counters, sessions, socket } = await newFront(t);
  // No ordinary socket can send from port 0, but a packet on the wire can say so.
  const remote = { address: '127.0.0.1', family: 'IPv4' as const, port: 0, size: 1 };
  socket.emit('message', Buffer.from('x'), remote);
  t.match(counters, { datagramsDropped: 1, connections: 0 });
  t.equal(sessions.size, 0);
});

t.test('an error of the listening socket is counted and the listener goes on', async (t) => {
  const { counters, socket } = await newFront(t);
  // As Windows does when an earlier answer found no socket.
  socket.emit('error', Object.assign(new Error('recvmsg ECONNRESET'), { code: 'ECONNRESET' }));
  t.equal(counters.datagramsDropped, 1);
  const client = await UdpClient.open(t);
  t.equal(await client.ask('still there?', socket.address().port), 'still there?');
});

t.test('a client that is gone does not disturb the others', async (t) => {
  const rig = new UdpRig(t);
  const backend = await UdpBackend.start(t, () => undefined);
  const owner = rig.service([backend.spec]);
  const listener = await rig.listen(owner);
  const [leaves, stays] = [await UdpClient.open(t), await UdpClient.open(t)];
  leaves.send('leaves', listener.boundPort);
  await until(() => backend.received.length === 1);
  const { firstPeer } = backend;
  await leaves.close();
  for (let index = 0; index < 5; index += 1) backend.send(Buffer.from('nobody'), firstPeer);
  await until(() => owner.counters.datagramsOut === 5);

  stays.send('stays', listener.boundPort);
  await until(() => backend.received.length === 2);
  backend.send(Buffer.from('answer'), backend.received[1]?.remote ?? firstPeer);
  await until(() => stays.replies.length === 1);
  t.equal(stays.lastReply, 'answer');
});

t.test('a size of socket buffers that the system does not grant is no error', async (t) => {
  const socket = await boundSocket(4, '127.0.0.1', 0);
  t.teardown(() => socket.close());
  askBuffers(socket, 2 ** 30);
  t.ok(socket.getRecvBufferSize() > 0);
  const unbound = createSocket('udp4');
  t.teardown(() => unbound.close());
  t.doesNotThrow(() => askBuffers(unbound, 65_536), 'nor is one that has no descriptor yet');
});

t.test('a send queue is full by bytes or by number, and never while nothing waits', async (t) => {
  const socket = (count: number, bytes: number): Parameters<typeof sendQueueFull>[0] =>
    Object.assign(createSocket('udp4').unref(), {
      getSendQueueCount: () => count,
      getSendQueueSize: () => bytes,
    });
  t.equal(sendQueueFull(socket(0, 0), 65_507, 10), false, 'one datagram of any size');
  t.equal(sendQueueFull(socket(1, 5), 5, 10), false);
  t.equal(sendQueueFull(socket(1, 5), 6, 10), true);
  t.equal(sendQueueFull(socket(63, 0), 0, 10), false);
  t.equal(sendQueueFull(socket(64, 0), 0, 10), true);
});

t.test('the addresses of the host are its unicast addresses without zones', async (t) => {
  const found = readHostAddresses();
  t.ok(found[4].includes('127.0.0.1'));
  t.ok(found[4].every((address) => address.includes('.')));
  t.ok(found[6].every((address) => address.includes(':') && !address.startsWith('fe80')));
  const listed = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  t.ok(listed.length >= found[4].length + found[6].length);
});

t.test('a watch tells every reading to all that subscribe, until they leave', async (t) => {
  const clock = new FakeClock();
  let address = '127.0.0.1';
  const watch = new HostAddressWatch(clock, () => ({ 4: [address], 6: [] }));
  const told: string[] = [];
  const [one, two] = ['one', 'two'].map((name) => (now: { 4: readonly string[] }) => {
    told.push(`${name} ${now[4].join()}`);
  }) as [() => void, () => void];

  t.same(watch.subscribe(one), { 4: ['127.0.0.1'], 6: [] });
  watch.subscribe(two);
  address = '127.0.0.2';
  clock.advance(5000);
  t.same(told, ['one 127.0.0.2', 'two 127.0.0.2']);
  watch.unsubscribe(one);
  watch.unsubscribe(one);
  clock.advance(5000);
  t.same(told.slice(2), ['two 127.0.0.2']);
  watch.unsubscribe(two);
  t.equal(clock.pending, 0);
});
