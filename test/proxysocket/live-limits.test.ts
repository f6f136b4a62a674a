/** Limits that change while an engine runs, and those of session affinity. */
import { once } from 'node:events';
import t from 'tap';
import { limitChanged } from '../../src/proxysocket/events.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { collect } from '../support/sockets.ts';
import { echoServer, endOf, request, tcpClient, tcpServer } from '../support/tcp-peers.ts';
import { TcpRig, tcpScene, udpSpec } from '../support/tcp-rig.ts';
import { UdpBackend, UdpClient } from '../support/udp-peers.ts';
import { until } from '../support/until.ts';

t.test('half-closed connections get the new limit, old ones at their next check', async (t) => {
  const server = await tcpServer(t, (socket) => socket.resume().write('hello'));
  const { rig, port } = await tcpScene(t, { server, limits: { halfCloseTimeoutMs: 8000 } });
  const [before, after] = [await tcpClient(t, port), await tcpClient(t, port)];
  await Promise.all([once(before, 'data'), once(after, 'data')]);
  before.end();
  await until(() => server.sockets.some((socket) => socket.readableEnded));
  await rig.engine.setLimits?.({ halfCloseTimeoutMs: 200 });
  after.end();
  t.equal(await endOf(after), 'ECONNRESET');
  await until(() => rig.counters.halfCloseTimeouts === 1);
  t.equal(await endOf(before), 'ECONNRESET');
  await until(() => rig.counters.halfCloseTimeouts === 2);
});

t.test('sessions take a new idle limit with the next datagram, or keep their own', async (t) => {
  const rig = new TcpRig(t, { limits: { udpIdleTimeoutMs: 3_600_000 } });
  const backend = await UdpBackend.start(t);
  const own = { name: 'test/own', udpIdleTimeoutMs: 3_600_000 };
  await rig.engine.apply([
    { kind: 'set', spec: udpSpec([backend.spec]) },
    { kind: 'set', spec: udpSpec([backend.spec], own) },
  ]);
  const [port, ownPort] = [rig.port('test/dns'), rig.port('test/own')];
  const client = await UdpClient.open(t);
  await client.ask('one', port);
  await client.ask('one', ownPort);
  await rig.engine.setLimits?.({ udpIdleTimeoutMs: 1500 });
  await client.ask('two', port);
  await client.ask('two', ownPort);
  await until(() => rig.snapshot('test/dns').counters.active === 0);
  t.equal(rig.snapshot('test/dns').counters.idleTimeouts, 1);
  t.equal(rig.snapshot('test/own').counters.active, 1);
});

t.test('limits of session affinity are reported as one event, and so is room', async (t) => {
  const clock = new FakeClock();
  const limits = { maxAffinityClients: 2, maxAffinityClientsTotal: 3 };
  const rig = new TcpRig(t, { clock, limits });
  const changes = collect(t, limitChanged);
  const { endpoint } = await echoServer(t);
  const affinity = { kind: 'clientIP', timeoutSeconds: 10 } as const;
  const [first, second] = [
    await rig.serve([endpoint], { affinity }),
    await rig.serve([endpoint], { name: 'test/second:http', affinity }),
  ];
  const ask = (port: number, from: string) => request(t, port, '', { localAddress: from });
  for (const from of ['127.0.0.1', '127.0.0.2']) await ask(first, from);
  t.same(changes, []);
  for (const from of ['127.0.0.3', '127.0.0.4']) await ask(first, from);
  const own = { limit: 'max-affinity-clients', value: 2 };
  t.same(changes.splice(0), [{ ...own, reached: true }], 'reported once');
  clock.advance(10_000);
  await ask(first, '127.0.0.4');
  t.same(changes.splice(0), [{ ...own, reached: false }]);
  for (const from of ['127.0.0.1', '127.0.0.2']) await ask(second, from);
  t.same(changes, []);
  await ask(first, '127.0.0.3');
  const total = { limit: 'max-affinity-clients-total', value: 3 };
  t.same(changes.splice(0), [{ ...total, reached: true }], 'service ports share one');
  await rig.remove('test/second:http');
  t.same(changes.at(-1), { ...total, reached: false }, 'a removed one gives its clients back');
});
