import { FakeClock } from '../../support/fake-clock.ts';
import { UdpBackend, UdpClient, UdpRig, udpScene, silent } from '../../support/udp-rig.ts';
import { until } from '../../support/until.ts';
import {
  endpointPicked,
  udpSessionEnded,
  udpSessionStarted,
} from '../../../src/proxysocket/events.ts';
import { collect, sha256 } from '../../support/sockets.ts';
import { randomBytes } from 'node:crypto';
import t from 'tap';

t.test('U1 (kept): a datagram is echoed; the session of a silent client ends', async (t) => {
  const { clock, backend, owner, port, client } = await udpScene(t);
  t.equal(await client.ask('abc123', port), 'abc123');
  clock.advance(29_999);
  t.equal(owner.counters.active, 1);
  clock.advance(1);
  t.equal(clock.pending, 0, 'without sessions nothing is timed');
  t.match(owner.counters, { active: 0, idleTimeouts: 1, datagramsIn: 1, datagramsOut: 1 });
  t.match(owner.counters, { bytesIn: 6, bytesOut: 6, datagramsDropped: 0 });
  await client.ask('y', port);
  t.equal(owner.counters.connections, 2, 'the next datagram begins another session');
  t.equal(backend.peers, 2);
});

t.test('datagrams of either direction keep a session', async (t) => {
  const { clock, backend, owner, port, client } = await udpScene(t, { answer: silent });

  client.send('1', port);
  await until(() => backend.received.length === 1);
  clock.advance(20_000);
  client.send('2', port);
  await until(() => backend.received.length === 2);
  clock.advance(20_000);
  t.equal(owner.counters.active, 1, 'kept by the client');

  const remote = backend.firstPeer;
  backend.send(Buffer.from('3'), remote);
  await until(() => client.replies.length === 1);
  clock.advance(20_000);
  t.equal(owner.counters.active, 1, 'kept by the endpoint');
  clock.advance(12_000);
  t.equal(owner.counters.active, 0);
});

t.test('a service port has its own idle limit, and may change it', async (t) => {
  const clock = new FakeClock();
  const rig = new UdpRig(t, { clock });
  const backend = await UdpBackend.start(t);
  const short = rig.service([backend.spec], { idleMs: 2000 });
  const long = rig.service([backend.spec], { idleMs: 300_000 });
  const client = await UdpClient.open(t);
  const [toShort, toLong] = [await rig.listen(short), await rig.listen(long)];

  await client.ask('x', toShort.boundPort);
  await client.ask('x', toLong.boundPort);
  clock.advance(2000);
  t.equal(short.counters.active, 0);
  t.equal(long.counters.active, 1);

  long.udpIdleTimeoutMs = 1000;
  await client.ask('x', toLong.boundPort);
  clock.advance(1000);
  t.equal(long.counters.active, 0, 'the new limit counts from the next datagram');

  await client.ask('x', toShort.boundPort);
  short.udpIdleTimeoutMs = 60_000;
  clock.advance(2000);
  t.equal(short.counters.active, 1, 'a longer limit saves a session that would have expired');
  clock.advance(60_000);
  t.equal(short.counters.active, 0);
});

t.test('the first datagrams of a client keep their order while its socket opens', async (t) => {
  const { backend, owner, port, client } = await udpScene(t, { answer: silent });

  const sent = Array.from({ length: 30 }, (_, index) => `datagram ${index}`);
  for (const text of sent) client.send(text, port);
  await until(() => backend.received.length === sent.length);
  t.same(
    backend.received.map(({ message }) => message.toString()),
    sent,
  );
  t.equal(owner.counters.connections, 1);
  t.equal(owner.counters.datagramsIn, 30);
});

t.test('a session reports its endpoint, its beginning and its end', async (t) => {
  const picked = collect(t, endpointPicked);
  const started = collect(t, udpSessionStarted);
  const ended = collect(t, udpSessionEnded);
  const { clock, rig, backend, port, client } = await udpScene(t, {
    name: 'kube-system/dns:dns',
    affinity: { kind: 'clientIP', timeoutSeconds: 600 },
  });
  const second = await UdpClient.open(t);
  await client.ask('one', port);
  await client.ask('two', port);
  client.send('', port);
  await until(() => client.replies.length === 3);

  const endpoint = `127.0.0.1:${backend.spec.port}`;
  const remoteAddress = `127.0.0.1:${client.port}`;
  const servicePort = 'kube-system/dns:dns';
  t.same(picked, [
    {
      servicePort,
      sourceAddress: remoteAddress,
      endpoint,
      sticky: false,
      endpoints: 1,
      attempt: 1,
    },
  ]);
  t.same(started, [{ servicePort, remoteAddress, endpoint }]);
  t.same(ended, []);

  clock.advance(30_000);
  t.same(ended, [
    { servicePort, remoteAddress, endpoint, datagramsIn: 3, datagramsOut: 3, reason: 'idle' },
  ]);
  await second.ask('x', port);
  t.match(picked[1], { sticky: true, attempt: 1 });

  await rig.acceptor.destroy();
  t.match(ended[1], { reason: 'destroyed', datagramsIn: 1 });
});

/** The most that fits into one IPv4 datagram. */
const MAX = 65_507;

const MISSING = Buffer.from('missing');

for (const size of [0, 1, 1472, 4097, 9000, MAX - 1, MAX]) {
  t.test(`a datagram of ${size} bytes passes whole both ways`, async (t) => {
    const { backend, owner, port, client } = await udpScene(t);
    const payload = randomBytes(size);

    client.send(payload, port);
    await until(() => client.replies.length === 1);
    const there = backend.received[0]?.message ?? MISSING;
    const back = client.replies[0]?.message ?? MISSING;
    t.equal(there.length, size);
    t.equal(back.length, size);
    t.equal(sha256(there), sha256(payload));
    t.equal(sha256(back), sha256(payload));
    t.match(owner.counters, { bytesIn: size, bytesOut: size, datagramsIn: 1, datagramsOut: 1 });
  });
}

t.test('12 clients with mixed sizes and bursts get exactly their own answers', async (t) => {
  const rig = new UdpRig(t);
  // The answer differs from the question, and shows which question it belongs to.
  const answer = (message: Buffer): Buffer => Buffer.concat([Buffer.from('re:'), message]);
  const backends = await Promise.all([1, 2, 3].map(async () => UdpBackend.start(t, answer)));
  const owner = rig.service(backends.map(({ spec }) => spec));
  const listener = await rig.listen(owner);
  const sizes = [0, 1, 64, 512, 1200, 1472, 4096, 9000];

  const checks = Array.from({ length: 12 }, async (_, index) => {
    const client = await UdpClient.open(t, `127.0.0.${1 + (index % 3)}`);
    const expected: string[] = [];
    // All bursts of one round together fit into a socket buffer of the default size.
    for (let burst = 1; burst <= 5; burst += 1) {
      for (let one = 0; one < burst; one += 1) {
        const size = sizes[(index + burst + one) % sizes.length] ?? 0;
        const question = size === 0 ? Buffer.alloc(0) : randomBytes(size);
        expected.push(sha256(answer(question)));
        client.send(question, listener.boundPort);
      }
      await until(() => client.replies.length === expected.length);
    }
    // All answers to one client come through one socket pair, so even the order is kept.
    t.same(
      client.replies.map(({ message }) => sha256(message)),
      expected,
      `client ${index}`,
    );
    t.same(
      new Set(client.replies.map(({ from }) => from)),
      new Set([`127.0.0.1:${listener.boundPort}`]),
      `client ${index} is answered from the address and port that it asked`,
    );
  });
  await Promise.all(checks);
  t.match(owner.counters, { connections: 12, active: 12, datagramsIn: 180, datagramsOut: 180 });
  t.equal(owner.counters.datagramsDropped, 0);
  t.equal(owner.counters.bytesOut, owner.counters.bytesIn + 3 * 180);
});
