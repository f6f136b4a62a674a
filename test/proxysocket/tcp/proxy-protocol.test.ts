/** The PROXY protocol: its headers, and what endpoints learn of clients. */
import { once } from 'node:events';
import t from 'tap';
import { endpointPicked, rejected } from '../../../src/proxysocket/events.ts';
import { HEADER_TIMEOUT_MS } from '../../../src/proxysocket/tcp/connections.ts';
import { parseProxyHeader, proxyHeader } from '../../../src/proxysocket/tcp/proxy-protocol.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { collect } from '../../support/sockets.ts';
import {
  deafEndpoint,
  echoServer,
  endOf,
  readAll,
  tcpClient,
  tcpServer,
} from '../../support/tcp-peers.ts';
import { held, holding, TcpRig, tcpScene } from '../../support/tcp-rig.ts';
import { until } from '../../support/until.ts';

const FOUR = { address: '192.0.2.1', port: 56_324 };
const SIX = { address: '2001:db8::1', port: 1 };
const TO = { address: '198.51.100.2', port: 443 };
const V2 = '0d0a0d0a000d0a515549540a';

/** Source, destination, and the headers of both versions; the second as hex digits. */
const HEADERS: readonly (readonly [object, object, string, string])[] = [
  [FOUR, TO, 'TCP4 192.0.2.1 198.51.100.2 56324 443', '2111000cc0000201c6336402dc0401bb'],
  [
    SIX,
    { address: 'fe80::2%eth0', port: 65_535 },
    'TCP6 2001:db8::1 fe80::2 1 65535',
    '2121002420010db8000000000000000000000001fe8000000000000000000000000000020001ffff',
  ],
  // The client has left.
  [{}, TO, 'UNKNOWN', '20000000'],
];

t.test('headers are written, and read as they are written', async (t) => {
  for (const [source, to, text, hex] of HEADERS) {
    t.equal(proxyHeader(1, source, to).toString('latin1'), `PROXY ${text}\r\n`);
    t.equal(proxyHeader(2, source, to).toString('hex'), `${V2}${hex}`);
    for (const version of [1, 2] as const) {
      const header = proxyHeader(version, source, to);
      const parsed = { length: header.length, source: 'port' in source ? source : undefined };
      t.strictSame(parseProxyHeader(Buffer.concat([header, Buffer.from('GET')])), parsed);
      for (let length = 0; length < header.length; length += 1) {
        t.equal(parseProxyHeader(header.subarray(0, length)), 'incomplete', `${length} bytes`);
      }
    }
  }
  const mapped = { ...FOUR, address: `::ffff:${FOUR.address}` };
  t.same(proxyHeader(1, mapped, TO), proxyHeader(1, FOUR, TO));
  t.same(proxyHeader(1, SIX, TO), proxyHeader(1, {}, TO), 'there is none for two families');
});

t.test('other headers without an address, and invalid headers', async (t) => {
  const parse = (text: string) => parseProxyHeader(Buffer.from(text, 'latin1'));
  t.match(parse('PROXY UNKNOWN ff::1 ff::2 1 2\r\n'), { source: undefined });
  for (const text of [
    'GET / HTTP/1.1\r\n',
    'PROXY TCP4 192.0.2.1 198.51.100.2 56324\r\n',
    'PROXY TCP4 2001:db8::1 198.51.100.2 1 2\r\n',
    'PROXY TCP4 192.0.2.1 198.51.100.2 1 65536\r\n',
    'PROXY TCP4 192.0.2.1 198.51.100.2 1 2\n',
    `PROXY UNKNOWN ${'x'.repeat(200)}`,
  ]) {
    t.equal(parse(text), 'invalid', text);
  }
  const unix = Buffer.from(`${V2}2131000100`, 'hex');
  t.match(parseProxyHeader(unix), { length: 17, source: undefined }, 'a Unix socket');
  const six = proxyHeader(2, SIX, SIX);
  six.set([...Buffer.alloc(10), 255, 255, 192, 0, 2, 1], 16);
  six.writeUInt16BE(FOUR.port, 48);
  t.match(parseProxyHeader(six), { source: FOUR }, 'IPv4 from a socket of both families');
  const four = Buffer.concat([proxyHeader(2, FOUR, TO), Buffer.alloc(10_000)]);
  four.writeUInt16BE(15, 14);
  t.strictSame(parseProxyHeader(four), { length: 31, source: FOUR }, 'with an extension');
  for (const length of [8, 9000]) {
    four.writeUInt16BE(length, 14);
    t.equal(parseProxyHeader(four), 'invalid', `${length} bytes of addresses`);
  }
  four.writeUInt16BE(12, 14);
  four.writeUInt8(0x31, 12);
  t.equal(parseProxyHeader(four), 'invalid', 'version 3');
});

t.test('a client that goes to another endpoint is announced there, too', async (t) => {
  const rig = new TcpRig(t);
  const victim = await deafEndpoint(t);
  const good = await tcpServer(t);
  await rig.serve([victim.endpoint]);
  // It counts for new connections from this change on.
  const port = await rig.serve([victim.endpoint], { proxyProtocol: 2 });
  const client = await tcpClient(t, port);
  await until(() => rig.counters.active === 1);
  await rig.endpoints([victim.endpoint, good.endpoint]);
  await victim.kill();
  const accepted = await good.next();
  const here = { address: '127.0.0.1', port };
  const header = proxyHeader(2, { ...here, port: client.localPort }, here);
  t.same(await once(accepted, 'data'), [header], 'though the client has not sent anything');
  client.end('hello');
  t.equal(String(await readAll(accepted)), 'hello');
  t.match(rig.counters, { retries: 1, connectErrors: { reset: 1 }, bytesIn: 5 });
});

// Clients behind load balancers, which begin with a header.

const LINE = 'PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n';
const FROM = { proxyProtocolFrom: ['127.0.0.0/8'] };

function bytes(text: string): Buffer {
  return Buffer.from(text, 'latin1');
}

t.test('the announced client counts, and the header is removed', async (t) => {
  const picked = collect(t, endpointPicked);
  const server = await tcpServer(t);
  const { rig, port } = await tcpScene(t, { server }, { ...FROM, proxyProtocol: 1 });
  const slow = await tcpClient(t, port);
  slow.setNoDelay();
  for (const byte of bytes(LINE)) slow.write(Buffer.of(byte));
  slow.end('hello');
  const next = proxyHeader(1, FOUR, { address: '127.0.0.1', port });
  const first = String(await readAll(await server.next()));
  t.equal(first, `${String(next)}hello`, 'also for the endpoint');
  t.equal(picked[0]?.sourceAddress, '192.0.2.1:56324');
  const fast = await tcpClient(t, port);
  const data = Buffer.alloc(300_000, 'abcdefg');
  fast.end(Buffer.concat([proxyHeader(2, SIX, SIX), data]));
  const got = await readAll(await server.next());
  t.ok(got.subarray(-data.length).equals(data), 'what came with the header is not lost');
  t.equal(picked[1]?.sourceAddress, '[2001:db8::1]:1');
  t.match(rig.counters, { bytesIn: data.length + 5, rejectedProxyHeader: 0 });
});

t.test('source ranges are about the announced client', async (t) => {
  const listen = [{ sourceRanges: ['192.0.2.0/24'] }];
  const { rig, port } = await tcpScene(t, {}, { ...FROM, listen });
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
  const refused = collect(t, rejected);
  const { rig, port } = await tcpScene(t, { clock }, FROM);
  const wrong = await tcpClient(t, port);
  wrong.write('GET / HTTP/1.1\r\n');
  t.equal(await endOf(wrong), 'ECONNRESET');
  const waiting = await tcpClient(t, port);
  await until(() => rig.counters.connections === 2);
  clock.advance(HEADER_TIMEOUT_MS - 1);
  const { connections } = await rig.engine.inspect({ maxConnections: 10 });
  const client = { client: `127.0.0.1:${waiting.localPort}`, endpoint: '', state: 'connecting' };
  t.match(connections, [{ ...client, ageMs: HEADER_TIMEOUT_MS - 1 }]);
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
  const { rig, port } = await holding(t, {}, FROM);
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
    const { rig, port } = await tcpScene(t, {}, FROM);
    const client = await tcpClient(t, port);
    await until(() => rig.counters.connections === 1);
    const closed = rig.engine.close(newProcess);
    client.end(bytes(`${LINE}hello`));
    t.same(await readAll(client), bytes('hello'));
    await closed;
  });
}

t.test('it is reset when its service is removed', async (t) => {
  const picked = collect(t, endpointPicked);
  const refused = collect(t, rejected);
  const { rig, port } = await tcpScene(t, {}, FROM);
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
