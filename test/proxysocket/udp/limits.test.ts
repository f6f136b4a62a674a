import { Socket } from 'node:dgram';
import t from 'tap';
import { limitChanged, rejected, udpSessionEnded } from '../../../src/proxysocket/events.ts';
import { ENGINE } from '../../support/engine-under-test.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { collect, openDescriptors, settledDescriptors } from '../../support/sockets.ts';
import { UdpBackend, UdpClient, UdpRig, udpScene } from '../../support/udp-rig.ts';
import { until } from '../../support/until.ts';
import { startLimited } from '../limited-process.ts';

t.test('the least recently used session of any service port makes room', async (t) => {
  const clock = new FakeClock();
  const rig = new UdpRig(t, { clock, limits: { maxUdpSessions: 3 } });
  const ended = collect(t, udpSessionEnded);
  const limits = collect(t, limitChanged);
  const backend = await UdpBackend.start(t);
  const one = rig.service([backend.spec], { name: 'test/one:dns' });
  const two = rig.service([backend.spec], { name: 'test/two:dns', idleMs: 600_000 });
  const [toOne, toTwo] = [await rig.listen(one), await rig.listen(two)];
  const clients = await Promise.all([1, 2, 3, 4, 5].map(async () => UdpClient.open(t)));
  const [a, b, c, d, e] = clients as [UdpClient, UdpClient, UdpClient, UdpClient, UdpClient];
  const use = async (client: UdpClient, port: number): Promise<void> => {
    await client.ask('x', port);
    clock.advance(10);
  };

  await use(a, toOne.boundPort);
  await use(b, toTwo.boundPort);
  await use(c, toOne.boundPort);
  await use(a, toOne.boundPort);
  t.same(ended, []);

  await use(d, toOne.boundPort);
  await use(e, toTwo.boundPort);
  t.match(
    ended.map(({ servicePort, remoteAddress, reason }) => [servicePort, remoteAddress, reason]),
    [
      ['test/two:dns', `127.0.0.1:${b.port}`, 'evicted'],
      ['test/one:dns', `127.0.0.1:${c.port}`, 'evicted'],
    ],
    'b was older than c, and a was used again',
  );
  t.equal(one.counters.sessionsEvicted, 1);
  t.equal(two.counters.sessionsEvicted, 1);
  t.equal(one.counters.active + two.counters.active, 3);
  t.equal(await b.ask('back', toTwo.boundPort), 'back', 'who was evicted may come back');

  t.same(limits, [{ limit: 'max-udp-sessions', value: 3, reached: true }], 'reported once');
  rig.acceptor.servicePortGone(one);
  t.match(limits.at(-1), { limit: 'max-udp-sessions', reached: false });
});

t.test('a session makes no room while its first answer may come', async (t) => {
  const clock = new FakeClock();
  const rig = new UdpRig(t, { clock, limits: { maxUdpSessions: 1 } });
  const backend = await UdpBackend.start(t, () => undefined);
  const owner = rig.service([backend.spec]);
  const { boundPort: port } = await rig.listen(owner);
  const [first, second] = await Promise.all([UdpClient.open(t), UdpClient.open(t)]);
  first.send('1', port);
  await until(() => backend.received.length === 1);

  clock.advance(249);
  second.send('2', port);
  await until(() => owner.counters.datagramsDropped === 1);
  t.match(owner.counters, { rejectedLimit: 1, sessionsEvicted: 0 });

  clock.advance(1);
  second.send('3', port);
  await until(() => backend.received.length === 2);
  t.equal(owner.counters.sessionsEvicted, 1, 'no answer has come');
});

t.test('without free descriptors a client is refused, and served when one is free', async (t) => {
  const refused = collect(t, rejected);
  const { rig, owner, port, client } = await udpScene(t, { descriptors: 4 });
  t.ok(rig.descriptors.acquire(4), 'as TCP relays do');

  client.send('1', port);
  client.send('2', port);
  await until(() => owner.counters.datagramsDropped === 2);
  t.match(owner.counters, { rejectedLimit: 1, active: 0 });
  t.match(refused, [{ reason: 'limit' }]);

  rig.descriptors.release(1);
  t.equal(await client.ask('3', port), '3');
});

t.test('sessions that have ended leave no descriptor behind', async (t) => {
  const { clock, rig, owner, port } = await udpScene(t);
  const clients = await Promise.all(Array.from({ length: 100 }, () => UdpClient.open(t)));
  const before = await settledDescriptors();
  for (const round of [1, 2]) {
    await Promise.all(clients.map((client) => client.ask('x', port)));
    t.equal(openDescriptors(), before + 100, 'one descriptor for each session');
    clock.advance(30_000);
    t.match(owner.counters, { connections: 100 * round, idleTimeouts: 100 * round, active: 0 });
    t.equal(rig.descriptors.used, 0);
    // Windows closes sockets some turns later.
    await until(() => openDescriptors() <= before);
    t.equal(clock.pending, 0);
  }
});

t.test('any number of UDP clients leaves half of the descriptors to TCP', async (t) => {
  const limits = collect(t, limitChanged);
  const { rig, owner, port } = await udpScene(t, { descriptors: 20 });
  const regular = await UdpClient.open(t);

  for (let index = 1; index <= 25; index += 1) {
    const passing = await UdpClient.open(t);
    passing.send('x', port);
    await until(() => owner.counters.connections >= index);
    t.equal(await regular.ask('still here', port), 'still here');
  }
  t.match(owner.counters, { active: 10, connections: 26, sessionsEvicted: 16, rejectedLimit: 0 });
  t.match(limits[0], { limit: 'max-udp-sessions', value: 10, reached: true });
  t.ok(rig.descriptors.acquire(10), 'as TCP connections do');
});

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
