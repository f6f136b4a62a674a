import { Socket } from 'node:dgram';
import t from 'tap';
import { limitChanged, udpSessionEnded } from '../../../src/proxysocket/events.ts';
import { DEFAULT_LIMITS } from '../../../src/proxysocket/limits.ts';
import { ENGINE } from '../../support/engine-under-test.ts';
import { collect, openDescriptors, settledDescriptors } from '../../support/sockets.ts';
import { udpScene } from '../../support/tcp-rig.ts';
import { silent, UdpBackend, UdpClient } from '../../support/udp-peers.ts';
import { until } from '../../support/until.ts';
import { startLimited } from '../limited-process.ts';

/** So many descriptors for sessions and one for the listener. */
const descriptors = (sessions: number) => ({
  descriptorLimit: sessions + 1,
  limits: { reservedDescriptors: 0 },
});

t.test('the least recently used session of any service port makes room', async (t) => {
  const ended = collect(t, udpSessionEnded);
  const limits = collect(t, limitChanged);
  const { clock, rig, backend, port } = await udpScene(t, {}, { name: 'test/one' });
  const options = { name: 'test/two', protocol: 'UDP', udpIdleTimeoutMs: 600_000 } as const;
  const other = await rig.serve([backend.spec], options);
  const clients = await Promise.all([1, 2, 3, 4, 5].map(async () => UdpClient.open(t)));
  const [a, b, c, d, e] = clients as [UdpClient, UdpClient, UdpClient, UdpClient, UdpClient];
  const use = async (client: UdpClient, to: number): Promise<void> => {
    await client.ask('x', to);
    clock.advance(10);
  };

  await use(a, port);
  await use(b, other);
  await use(c, port);
  await use(d, port);
  await use(a, port);
  await rig.engine.setLimits({ maxUdpSessions: 3 });
  await use(d, port);
  t.same(ended, [], 'a lower limit is for the next new client');

  await use(e, other);
  const evicted = (servicePort: string, { port }: UdpClient) =>
    ({ servicePort, remoteAddress: `127.0.0.1:${port}`, reason: 'evicted' }) as const;
  t.match(ended, [evicted('test/two', b), evicted('test/one', c)], 'a was used again');
  t.equal(ended.length, 2);
  for (const name of ['test/one', 'test/two'])
    t.equal(rig.snapshot(name).counters.sessionsEvicted, 1);
  t.equal(rig.counters.active + rig.snapshot('test/two').counters.active, 3);
  t.equal(await b.ask('back', other), 'back', 'who was evicted may come back');

  t.same(limits, [{ limit: 'max-udp-sessions', value: 3, reached: true }], 'reported once');
  await rig.remove();
  t.match(limits.at(-1), { limit: 'max-udp-sessions', reached: false });
});

t.test('a session makes no room while its first answer may come', async (t) => {
  const options = { limits: { maxUdpSessions: 1 }, answer: silent };
  const { clock, rig, backend, port, client } = await udpScene(t, options);
  const second = await UdpClient.open(t);
  client.send('1', port);
  await until(() => backend.received.length === 1);

  clock.advance(249);
  second.send('2', port);
  await until(() => rig.counters.datagramsDropped === 1);
  t.match(rig.counters, { rejectedLimit: 1, sessionsEvicted: 0 });

  clock.advance(1);
  second.send('3', port);
  await until(() => backend.received.length === 2);
  t.equal(rig.counters.sessionsEvicted, 1, 'no answer has come');
});

t.test('sessions that have ended leave no descriptor behind', async (t) => {
  const { clock, rig, port } = await udpScene(t);
  const clients = await Promise.all(Array.from({ length: 100 }, () => UdpClient.open(t)));
  const before = await settledDescriptors();
  for (const round of [1, 2]) {
    await Promise.all(clients.map((client) => client.ask('x', port)));
    t.equal(openDescriptors(), before + 100, 'one descriptor for each session');
    clock.advance(30_000);
    t.match(rig.counters, { connections: 100 * round, idleTimeouts: 100 * round, active: 0 });
    t.equal(rig.engine.descriptors.used, 0);
    // Windows closes sockets some turns later.
    await until(() => openDescriptors() <= before);
    t.equal(clock.pending, 0);
  }
});

t.test('any number of UDP clients leaves half of the descriptors to TCP', async (t) => {
  const limits = collect(t, limitChanged);
  const { rig, port, client: regular } = await udpScene(t, descriptors(20));

  for (let index = 1; index <= 25; index += 1) {
    const passing = await UdpClient.open(t);
    passing.send('x', port);
    await until(() => rig.counters.connections >= index);
    t.equal(await regular.ask('still here', port), 'still here');
  }
  t.match(rig.counters, { active: 10, connections: 26, sessionsEvicted: 16, rejectedLimit: 0 });
  t.match(limits[0], { limit: 'max-udp-sessions', value: 10, reached: true });
  t.ok(rig.engine.descriptors.acquire(10), 'as TCP connections do');
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
  const { clock, rig, backend, port, client } = await udpScene(t);
  await client.ask('x', port);

  // On loopback the kernel always takes datagrams, so the queue is made to look filled.
  const { prototype } = Socket;
  const real = Object.getOwnPropertyDescriptors(prototype);
  let queued = { count: 1, bytes: DEFAULT_LIMITS.udpSendQueueBytes - 3 };
  prototype.getSendQueueCount = () => queued.count;
  prototype.getSendQueueSize = () => queued.bytes;
  t.teardown(() => Object.defineProperties(prototype, real));

  client.send('four', port);
  await until(() => rig.counters.datagramsDropped === 1);
  t.equal(rig.counters.datagramsIn, 1, 'no room for four bytes');
  t.equal(await client.ask('one', port), 'one', 'but for three');

  queued = { count: 64, bytes: 0 };
  client.send('', port);
  await until(() => rig.counters.datagramsDropped === 2);
  t.equal(rig.counters.datagramsIn, 2, 'datagrams without bytes are bounded by number');

  queued = { count: 63, bytes: 0 };
  t.equal(await client.ask('', port), '');
  queued = { count: 0, bytes: DEFAULT_LIMITS.udpSendQueueBytes };
  t.equal(await client.ask('again', port), 'again', 'the session lives');
  t.match(rig.counters, { connections: 1, active: 1 });

  const backendPeer = backend.firstPeer;
  queued = { count: 64, bytes: 0 };
  backend.send(Buffer.from('answer'), backendPeer);
  await until(() => rig.counters.datagramsDropped === 3);
  t.equal(client.lastReply, 'again', 'the same holds for answers');

  const limit = 'udp-send-queue';
  t.same(changes, [{ limit, value: 65_536, reached: true }], 'reported once');
  clock.advance(600);
  backend.send(Buffer.from('answer'), backendPeer);
  await until(() => rig.counters.datagramsDropped === 4);
  clock.advance(600);
  t.equal(changes.length, 1, 'the last one was dropped less than a second ago');
  clock.advance(400);
  t.same(changes[1], { limit, value: 65_536, reached: false });
  backend.send(Buffer.from('answer'), backendPeer);
  await until(() => changes.length === 3);
  t.match(changes[2], { limit, reached: true });
});
