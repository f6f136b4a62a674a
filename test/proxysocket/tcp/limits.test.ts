import type { Socket } from 'node:net';
import t from 'tap';
import { limitChanged, rejected } from '../../../src/proxysocket/events.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { collect } from '../../support/sockets.ts';
import * as peers from '../../support/tcp-peers.ts';
import { relayed, TcpRig, tcpScene } from '../../support/tcp-rig.ts';
import { eventually, until } from '../../support/until.ts';
import { startLimited } from '../limited-process.ts';

t.test('above the limit of connections new ones are reset', async (t) => {
  const { rig, server, port } = await tcpScene(t);
  const changes = collect(t, limitChanged);
  const refused = collect(t, rejected);
  const clients: Socket[] = [];
  for (let index = 0; index < 3; index += 1) clients.push(await peers.tcpClient(t, port));
  await until(() => rig.counters.active === 3);
  await rig.engine.setLimits({ maxConnections: 3 });
  t.same(changes, []);
  t.equal(await peers.connectionEnd(t, port), 'ECONNRESET');
  const other = await rig.serve([server.endpoint], { name: 'other' });
  t.equal(await peers.connectionEnd(t, other), 'ECONNRESET', 'all service ports share the limit');
  t.match(rig.counters, { connections: 4, active: 3, rejectedLimit: 1 });
  t.match(refused, [{ reason: 'limit' }, { reason: 'limit' }]);
  t.same(changes, [{ limit: 'max-connections', value: 3, reached: true }], 'reported once');

  clients[0]?.end();
  await until(() => rig.counters.active === 2);
  t.same(changes[1], { limit: 'max-connections', value: 3, reached: false });
  t.equal(await peers.request(t, port, 'room again'), 'room again');
  t.equal(server.sockets.length, 4, 'endpoints see nothing of those that were reset');
});

t.test('limits of session affinity are reported as one event, and so is room', async (t) => {
  const clock = new FakeClock();
  const limits = { maxAffinityClients: 2, maxAffinityClientsTotal: 3 };
  const rig = new TcpRig(t, { clock, limits });
  const changes = collect(t, limitChanged);
  const { endpoint } = await peers.echoServer(t);
  const affinity = { kind: 'clientIP', timeoutSeconds: 10 } as const;
  const [first, second] = [
    await rig.serve([endpoint], { affinity }),
    await rig.serve([endpoint], { name: 'test/second:http', affinity }),
  ];
  const ask = (port: number, from: string) => peers.request(t, port, '', { localAddress: from });
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

// A shell limits the descriptors of a process. Windows has no such limit.
const NO_LIMIT = process.platform === 'win32' && 'only on linux';

const name = 'running out of descriptors loses connections, not the process';
t.test(name, { skip: NO_LIMIT }, async (t) => {
  const ask = startLimited(t, 60);
  const port = await ask('port');

  // Each takes one descriptor in the child, which has about thirty left; nothing limits them.
  const connect = () => peers.tcpClient(t, port).catch(() => undefined);
  const clients = await Promise.all(Array.from({ length: 80 }, connect));
  const ends = clients.map(async (client) => (client ? peers.endOf(client) : 'refused'));
  t.match(await Promise.race(ends), /ECONNRESET|FIN|refused/);
  for (const client of clients) client?.destroy();

  let answer = '';
  while (answer !== 'alive?') {
    answer = await peers.request(t, port, 'alive?').catch(() => 'not yet');
  }
  t.ok(await eventually(async () => (await ask('counters'))?.active === 0));
});

const skip = process.platform !== 'linux' && 'only on linux';
t.test('keepalive runs on both sides of a relay', { skip }, async (t) => {
  const { server, port, client, socket } = await relayed(t);
  // Other timers may come first.
  await until(() => timer(port, client.localPort) === 2);
  await until(() => timer(socket.remotePort, server.port) === 2);
  client.end();
  socket.end();
  await peers.readAll(client);
});

/** What the kernel waits for on the socket with these ports. */
function timer(local: number | undefined, remote: number | undefined): number | undefined {
  return peers
    .kernelSockets()
    .find(({ localPort, remotePort }) => localPort === local && remotePort === remote)?.timer;
}
