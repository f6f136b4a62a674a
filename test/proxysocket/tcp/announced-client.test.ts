/** Clients behind load balancers, which begin with a PROXY protocol header. */
import t from 'tap';
import { endpointPicked, rejected } from '../../../src/proxysocket/events.ts';
import { HEADER_TIMEOUT_MS } from '../../../src/proxysocket/tcp/connections.ts';
import { proxyHeader } from '../../../src/proxysocket/tcp/proxy-protocol.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { held, holding, TcpRig } from '../../support/tcp-rig.ts';
import { collect } from '../../support/sockets.ts';
import { echoServer, endOf, readAll, tcpClient, tcpServer } from '../../support/tcp-peers.ts';
import { until } from '../../support/until.ts';

const SOURCE = { address: '192.0.2.1', port: 56_324 };
const SOURCE6 = { address: '2001:db8::1', port: 1 };
const LINE = 'PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n';
const FROM = { proxyProtocolFrom: ['127.0.0.0/8'] };

function bytes(text: string): Buffer {
  return Buffer.from(text, 'latin1');
}

t.test('the announced client counts, and the header is removed', async (t) => {
  const rig = new TcpRig(t);
  const picked = collect(t, endpointPicked);
  const server = await tcpServer(t);
  const port = await rig.serve([server.endpoint], { ...FROM, proxyProtocol: 1 });
  const slow = await tcpClient(t, port);
  slow.setNoDelay();
  for (const byte of bytes(LINE)) slow.write(Buffer.of(byte));
  slow.end('hello');
  const next = proxyHeader(1, SOURCE, { address: '127.0.0.1', port });
  t.equal(
    String(await readAll(await server.next())),
    `${String(next)}hello`,
    'also for the endpoint',
  );
  t.equal(picked[0]?.sourceAddress, '192.0.2.1:56324');
  const fast = await tcpClient(t, port);
  const data = Buffer.alloc(300_000, 'abcdefg');
  fast.end(Buffer.concat([proxyHeader(2, SOURCE6, SOURCE6), data]));
  const got = await readAll(await server.next());
  t.ok(got.subarray(-data.length).equals(data), 'what came with the header is not lost');
  t.equal(picked[1]?.sourceAddress, '[2001:db8::1]:1');
  t.match(rig.counters, { bytesIn: data.length + 5, rejectedProxyHeader: 0 });
});

t.test('source ranges are about the announced client', async (t) => {
  const rig = new TcpRig(t);
  const server = await echoServer(t);
  const port = await rig.serve([server.endpoint], {
    ...FROM,
    listen: [{ sourceRanges: ['192.0.2.0/24'] }],
  });
  const inside = await tcpClient(t, port);
  inside.end(`${LINE}hello`);
  t.equal(String(await readAll(inside)), 'hello');
  const outside = await tcpClient(t, port);
  outside.write(LINE.replace('192.0.2.1', '203.0.113.9'));
  t.equal(await endOf(outside), 'ECONNRESET');
  const itself = await tcpClient(t, port);
  itself.write('PROXY UNKNOWN\r\n');
  t.equal(await endOf(itself), 'ECONNRESET', 'the load balancer itself');
  t.match(rig.counters, { rejectedSource: 2 });
});

t.test('without a header in time the client is reset', async (t) => {
  const clock = new FakeClock();
  const rig = new TcpRig(t, { clock });
  const refused = collect(t, rejected);
  const server = await echoServer(t);
  const port = await rig.serve([server.endpoint], FROM);
  const wrong = await tcpClient(t, port);
  wrong.write('GET / HTTP/1.1\r\n');
  t.equal(await endOf(wrong), 'ECONNRESET');
  const waiting = await tcpClient(t, port);
  await until(() => rig.counters.connections === 2);
  clock.advance(HEADER_TIMEOUT_MS - 1);
  const { connections } = (await rig.engine.inspect?.({ maxConnections: 10 })) ?? {};
  const client = `127.0.0.1:${waiting.localPort}`;
  t.match(connections, [
    { client, endpoint: '', state: 'connecting', ageMs: HEADER_TIMEOUT_MS - 1 },
  ]);
  clock.advance(1);
  t.equal(await endOf(waiting), 'ECONNRESET');
  t.match(rig.counters, { rejectedProxyHeader: 2, active: 0 });
  t.match(refused[0], { reason: 'proxy-header', remoteAddress: /^127\.0\.0\.1:\d+$/ });
  // A check of a load balancer whether the port is open.
  const check = await tcpClient(t, port);
  check.end();
  await endOf(check);
  t.match(rig.counters, { rejectedProxyHeader: 2, connections: 3 });
  await rig.engine.close();
});

t.test('an announced client is held like any other', async (t) => {
  const rig = holding(t);
  const port = await rig.serve([], FROM);
  const client = await tcpClient(t, port);
  client.write(`${LINE}hello`);
  await held(rig, 1);
  const server = await echoServer(t);
  await rig.endpoints([server.endpoint]);
  client.end(' there');
  t.equal(String(await readAll(client)), 'hello there');
  const other = await tcpClient(t, port);
  await until(() => rig.counters.connections === 2);
  await rig.engine.destroy();
  t.equal(await endOf(other), 'ECONNRESET', 'one whose header is being read ends with the engine');
});

for (const newProcess of [undefined, { served: new Set<number>() }]) {
  const when = newProcess === undefined ? 'the engine stops' : 'another process takes over';
  t.test(`it is served when ${when}`, async (t) => {
    const rig = new TcpRig(t);
    const server = await echoServer(t);
    const client = await tcpClient(t, await rig.serve([server.endpoint], FROM));
    await until(() => rig.counters.connections === 1);
    const closed = rig.engine.close(newProcess);
    client.end(bytes(`${LINE}hello`));
    t.same(await readAll(client), bytes('hello'));
    await closed;
  });
}

t.test('it is reset when its service is removed', async (t) => {
  const rig = new TcpRig(t);
  const picked = collect(t, endpointPicked);
  const refused = collect(t, rejected);
  const server = await echoServer(t);
  const port = await rig.serve([server.endpoint], FROM);
  const client = await tcpClient(t, port);
  await until(() => rig.counters.connections === 1);
  const remoteAddress = `127.0.0.1:${client.localPort}`;
  const ended = endOf(client);
  await rig.remove();
  client.write(LINE);
  t.equal(await ended, 'ECONNRESET');
  t.match(refused, [{ reason: 'no-endpoint', remoteAddress }]);
  t.same(picked, []);
});
