import { randomBytes } from 'node:crypto';
import t from 'tap';
import { UdpBackend, UdpClient, UdpRig, udpScene } from '../../support/udp-rig.ts';
import { sha256 } from '../../support/sockets.ts';
import { until } from '../../support/until.ts';

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
