import { Socket } from 'node:dgram';
import t from 'tap';
import { limitChanged } from '../../../src/proxysocket/events.ts';
import { ENGINE } from '../../support/engine-under-test.ts';
import { UdpBackend, UdpClient, udpScene } from '../../support/udp-rig.ts';
import { collect } from '../../support/sockets.ts';
import { until } from '../../support/until.ts';
import { startLimited } from '../limited-process.ts';

const SKIP = process.platform === 'linux' ? false : 'sets limits with sh';

t.test('without a descriptor left, old sessions make room', { skip: SKIP }, async (t) => {
  const DESCRIPTORS = 64;
  const backend = await UdpBackend.start(t);
  const ask = startLimited(t, DESCRIPTORS, [backend.spec]);
  const port = await ask('port');

  for (let index = 0; index < DESCRIPTORS; index += 1) {
    const client = await UdpClient.open(t);
    t.equal(await client.ask(`client ${index}`, port), `client ${index}`);
  }
  const counters = await ask('counters');
  if (counters === undefined) throw new Error('it has gone');
  t.ok(counters.sessionsEvicted > 0);
  t.equal(counters.connectErrors.limit, counters.sessionsEvicted);
  t.equal(counters.active, DESCRIPTORS - counters.sessionsEvicted);
  t.equal(counters.rejectedLimit, 0);
});

// Only there can the queue be made to look filled.
const onNode = ENGINE === 'node' ? t.test.bind(t) : () => undefined;

onNode('datagrams are dropped and counted while the kernel takes none', async (t) => {
  const changes = collect(t, limitChanged);
  const { clock, rig, backend, owner, port, client } = await udpScene(t);
  await client.ask('x', port);

  // On loopback the kernel always takes datagrams, so the queue is made to look filled.
  const { prototype } = Socket;
  const real = Object.getOwnPropertyDescriptors(prototype);
  let queued = { count: 1, bytes: rig.limits.udpSendQueueBytes - 3 };
  prototype.getSendQueueCount = () => queued.count;
  prototype.getSendQueueSize = () => queued.bytes;
  t.teardown(() => Object.defineProperties(prototype, real));

  client.send('four', port);
  await until(() => owner.counters.datagramsDropped === 1);
  t.equal(owner.counters.datagramsIn, 1, 'no room for four bytes');
  t.equal(await client.ask('one', port), 'one', 'but for three');

  queued = { count: 64, bytes: 0 };
  client.send('', port);
  await until(() => owner.counters.datagramsDropped === 2);
  t.equal(owner.counters.datagramsIn, 2, 'datagrams without bytes are bounded by number');

  queued = { count: 63, bytes: 0 };
  t.equal(await client.ask('', port), '');
  queued = { count: 0, bytes: rig.limits.udpSendQueueBytes };
  t.equal(await client.ask('again', port), 'again', 'the session lives');
  t.match(owner.counters, { connections: 1, active: 1 });

  const backendPeer = backend.firstPeer;
  queued = { count: 64, bytes: 0 };
  backend.send(Buffer.from('answer'), backendPeer);
  await until(() => owner.counters.datagramsDropped === 3);
  t.equal(client.lastReply, 'again', 'the same holds for answers');

  const limit = 'udp-send-queue';
  t.same(changes, [{ limit, value: 65_536, reached: true }], 'reported once');
  clock.advance(600);
  backend.send(Buffer.from('answer'), backendPeer);
  await until(() => owner.counters.datagramsDropped === 4);
  clock.advance(600);
  t.equal(changes.length, 1, 'the last one was dropped less than a second ago');
  clock.advance(400);
  t.same(changes[1], { limit, value: 65_536, reached: false });
  backend.send(Buffer.from('answer'), backendPeer);
  await until(() => changes.length === 3);
  t.match(changes[2], { limit, reached: true });
});
