/** What is kept for clients that were held, once they have their endpoint, and for service ports of shared sockets. */
import t from 'tap';
import { FakeHost, listenSpec } from '../../support/fake-host.ts';
import { usedMemory } from '../../support/sockets.ts';
import { echoServer, tcpClient } from '../../support/tcp-peers.ts';
import { TcpRig } from '../../support/tcp-rig.ts';
import { until } from '../../support/until.ts';

const CLIENTS = 200;
const SENT = 'b'.repeat(12 * 1024);

t.test('bytes that a client sent while held are released afterwards', async (t) => {
  const rig = new TcpRig(t, { limits: { holdTimeoutMs: 3_600_000 } });
  const port = await rig.serve([]);
  const clients = await Promise.all(Array.from({ length: CLIENTS }, () => tcpClient(t, port)));
  const answers = clients.map(() => '');
  const { arrayBuffers: before } = usedMemory();
  for (const [index, client] of clients.entries()) {
    client.on('data', (data) => (answers[index] += String(data)));
    client.write(SENT);
  }
  await until(() => rig.counters.held === CLIENTS);
  await until(() => process.memoryUsage().arrayBuffers >= before + CLIENTS * SENT.length);
  const { arrayBuffers: held } = usedMemory();
  await rig.endpoints([(await echoServer(t)).endpoint]);
  await until(() => answers.every((answer) => answer === SENT));
  for (const client of clients) client.write('after');
  await until(() => answers.every((answer) => answer === `${SENT}after`));
  await until(() => usedMemory().arrayBuffers < held - CLIENTS * 8 * 1024);
});

const RANGES = Array.from({ length: 1000 }, (_, n) => `2001:db8:ffff:${n.toString(16)}::/64`);

t.test('a service port of shared sockets keeps no list of source ranges', async (t) => {
  const names = Array.from({ length: 40 }, (_, index) => String(index));
  const addressOf = (name: string) => `10.0.0.${name}`;
  const specOf = (name: string, sourceRanges: readonly string[]) => {
    const transparent = [{ address: addressOf(name), port: 80 }];
    const listen = { address: '127.0.0.1', port: 0, traffic: 'internal', transparent } as const;
    return listenSpec(name, [{ ...listen, sourceRanges }]);
  };
  const host = new FakeHost({ kind: 'linux' });
  const all = { address: '127.0.0.1', port: 0, traffic: 'internal', transparent: [] } as const;
  await host.set(listenSpec('all', [all]), specOf('50', []));
  host.connect(addressOf('50'));
  const { heapUsed: before } = usedMemory();
  await host.set(...names.map((name) => specOf(name, RANGES)));
  for (const name of names) host.connect(addressOf(name));
  t.match(host.counters('39'), { connections: 1, rejectedSource: 1 });
  const bytes = usedMemory().heapUsed - before;
  t.ok(bytes < names.length * RANGES.length * 20, `${bytes} bytes`);
});
