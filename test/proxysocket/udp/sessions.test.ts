import { udpScene } from '../../support/tcp-rig.ts';
import { silent, UdpBackend, UdpClient } from '../../support/udp-peers.ts';
import { until } from '../../support/until.ts';
import { newCounters } from '../../../src/proxysocket/counters.ts';
import {
  endpointPicked,
  udpSessionEnded,
  udpSessionStarted,
} from '../../../src/proxysocket/events.ts';
import type { ServicePort } from '../../../src/proxysocket/core/service-port.ts';
import { collect, sha256 } from '../../support/sockets.ts';
import { randomBytes } from 'node:crypto';
import t from 'tap';
import { setEnvironmentData } from 'node:worker_threads';
import {
  previousFlows,
  keepPreviousFlows,
  MAX_REFUSED_CLIENTS,
  refusals,
} from '../../../src/proxysocket/udp/known-clients.ts';
import { FakeClock } from '../../support/fake-clock.ts';

/** The most that fits into one IPv4 datagram. */
const LARGEST = 'x'.repeat(65_507);

t.test('U1 (kept): a datagram is echoed; the session of a silent client ends', async (t) => {
  const { clock, rig, backend, port, client } = await udpScene(t);
  t.equal(await client.ask('abc123', port), 'abc123');
  t.equal(await client.ask(LARGEST, port), LARGEST);
  clock.advance(29_999);
  t.equal(rig.counters.active, 1);
  clock.advance(1);
  t.equal(clock.pending, 0, 'without sessions nothing is timed');
  t.match(rig.counters, { active: 0, idleTimeouts: 1, datagramsIn: 2, datagramsOut: 2 });
  t.match(rig.counters, { bytesIn: 65_513, bytesOut: 65_513, datagramsDropped: 0 });
  await client.ask('y', port);
  t.equal(rig.counters.connections, 2, 'the next datagram begins another session');
  t.equal(backend.peers, 2);
});

t.test('datagrams of either direction keep a session', async (t) => {
  const { clock, rig, backend, port, client } = await udpScene(t, { answer: silent });

  client.send('1', port);
  await until(() => backend.received.length === 1);
  clock.advance(20_000);
  client.send('2', port);
  await until(() => backend.received.length === 2);
  clock.advance(20_000);
  t.equal(rig.counters.active, 1, 'kept by the client');

  const remote = backend.firstPeer;
  backend.send(Buffer.from('3'), remote);
  await until(() => client.replies.length === 1);
  clock.advance(20_000);
  t.equal(rig.counters.active, 1, 'kept by the endpoint');
  clock.advance(12_000);
  t.equal(rig.counters.active, 0);
});

t.test('sessions take a new idle limit with the next datagram, or keep their own', async (t) => {
  const options = { limits: { udpIdleTimeoutMs: 3_600_000 } };
  const { clock, rig, backend, port, client } = await udpScene(t, options);
  const own = { name: 'test/own', protocol: 'UDP', udpIdleTimeoutMs: 3_600_000 } as const;
  const ports = [port, await rig.serve([backend.spec], own)];
  for (const to of ports) await client.ask('one', to);
  await rig.engine.setLimits({ udpIdleTimeoutMs: 1500 });
  for (const to of ports) await client.ask('two', to);
  clock.advance(1700);
  t.match(rig.counters, { active: 0, idleTimeouts: 1 });
  t.match(rig.snapshot(own.name).counters, { active: 1 });
});

t.test('a session reports its endpoint, its beginning and its end', async (t) => {
  const picked = collect(t, endpointPicked);
  const started = collect(t, udpSessionStarted);
  const ended = collect(t, udpSessionEnded);
  const affinity = { kind: 'clientIP', timeoutSeconds: 600 } as const;
  const { clock, rig, backend, port, client } = await udpScene(t, {}, { affinity });
  const second = await UdpClient.open(t);
  await client.ask('one', port);
  await client.ask('two', port);
  client.send('', port);
  await until(() => client.replies.length === 3);

  const endpoint = `127.0.0.1:${backend.spec.port}`;
  const remoteAddress = `127.0.0.1:${client.port}`;
  const servicePort = rig.name;
  const first = { servicePort, sourceAddress: remoteAddress, endpoint, endpoints: 1, attempt: 1 };
  t.same(picked, [{ ...first, sticky: false }]);
  t.same(started, [{ servicePort, remoteAddress, endpoint }]);
  t.same(ended, []);

  clock.advance(30_000);
  t.same(ended, [
    { servicePort, remoteAddress, endpoint, datagramsIn: 3, datagramsOut: 3, reason: 'idle' },
  ]);
  await second.ask('x', port);
  t.match(picked[1], { sticky: true, attempt: 1 });

  await rig.engine.destroy();
  t.match(ended[1], { reason: 'service-gone', datagramsIn: 1 });
});

t.test('12 clients with mixed sizes and bursts get exactly their own answers', async (t) => {
  // The answer differs from the question, and shows which question it belongs to.
  const answer = (message: Buffer): Buffer => Buffer.concat([Buffer.from('re:'), message]);
  const backends = await Promise.all([1, 2, 3].map(async () => UdpBackend.start(t, answer)));
  const { rig, port } = await udpScene(t, { endpoints: backends.map(({ spec }) => spec) });
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
        client.send(question, port);
      }
      await until(() => client.replies.length === expected.length);
    }
    // All answers to one client come through one socket pair, so even the order is kept.
    const replies = client.replies.map(({ message }) => sha256(message));
    t.same(replies, expected, `client ${index}`);
    const from = new Set(client.replies.map((reply) => reply.from));
    t.same(from, new Set([`127.0.0.1:${port}`]), 'from the address and port that it asked');
  });
  await Promise.all(checks);
  t.match(rig.counters, { connections: 12, active: 12, datagramsIn: 180, datagramsOut: 180 });
  t.equal(rig.counters.datagramsDropped, 0);
  t.equal(rig.counters.bytesOut, rig.counters.bytesIn + 3 * 180);
});

// What sessions are refused for, and what they remember.

const WINDOW = 30_000;

t.test('clients are one refusal while they ask; a flood does not grow the memory', async (t) => {
  const clock = new FakeClock();
  const owner = { name: 'd/dns:dns', protocol: 'UDP', counters: newCounters() } as ServicePort;
  const report = refusals(clock, WINDOW);
  const refuse = (port: number): number => {
    report(owner, { address: '127.0.0.1', port }, 'no-endpoint');
    return owner.counters.rejectedNoEndpoint;
  };
  for (let asked = 0; asked < 20; asked += 1) {
    t.equal(refuse(1), 1);
    clock.advance(WINDOW / 3);
  }
  const flood = 3 * MAX_REFUSED_CLIENTS;
  for (let port = 1; port <= flood; port += 1) refuse(port);
  t.equal(refuse(flood), flood, 'the latest are remembered');
  t.equal(refuse(1), flood + 1, 'the first are forgotten');
});

t.test('which endpoints clients had in the process before this one', async (t) => {
  t.teardown(() => setEnvironmentData('kpng-userspace previous UDP flows', undefined));
  const servicePort = 'd/dns:dns';
  keepPreviousFlows([
    { servicePort, client: '10.0.0.9:5000', endpoint: '10.1.0.1:53' },
    { servicePort, client: '[fd00::9]:5000', endpoint: '10.1.0.2:53' },
  ]);
  const clock = new FakeClock();
  const take = previousFlows(clock, WINDOW);
  const client = { address: '10.0.0.9', port: 5000 };
  clock.advance(10 * WINDOW);
  t.equal(take('d/other:dns', client), undefined);
  t.equal(take(servicePort, { ...client, port: 5001 }), undefined);
  t.equal(take(servicePort, client), '10.1.0.1:53', 'the time begins with the first look');
  t.equal(take(servicePort, client), undefined, 'its next session begins again');
  clock.advance(WINDOW + 1);
  const six = { address: 'fd00::9', port: 5000 };
  t.equal(take(servicePort, six), undefined, 'no session would have been idle for longer');
  t.equal(previousFlows(clock, WINDOW)(servicePort, six), '10.1.0.2:53');
});
