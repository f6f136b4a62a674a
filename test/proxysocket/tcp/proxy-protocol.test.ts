/** The PROXY protocol: what endpoints learn of clients. */
import t from 'tap';
import { proxyHeader } from '../../../src/proxysocket/tcp/proxy-protocol.ts';
import { deafEndpoint, readAll, tcpClient, tcpServer } from '../../support/tcp-peers.ts';
import { TcpRig } from '../../support/tcp-rig.ts';
import { until } from '../../support/until.ts';

const V2 = '0d0a0d0a000d0a515549540a';

t.test('headers of version 1', async (t) => {
  const text = (source: object, destination: object): string =>
    proxyHeader(1, source, destination).toString('latin1');
  const [four, other] = [
    { address: '192.0.2.1', port: 56_324 },
    { address: '198.51.100.2', port: 443 },
  ];
  t.equal(text(four, other), 'PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n');
  const six = { address: '2001:db8::1', port: 1 };
  const local = { address: 'fe80::2%eth0', port: 65_535 };
  t.equal(text(six, local), 'PROXY TCP6 2001:db8::1 fe80::2 1 65535\r\n');
  const mapped = { address: '::ffff:192.0.2.1', port: 56_324 };
  t.equal(text(mapped, other), 'PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n');
  t.equal(text({}, other), 'PROXY UNKNOWN\r\n', 'the client has left');
  t.equal(text(six, other), 'PROXY UNKNOWN\r\n', 'there is no header for two families');
});

t.test('headers of version 2', async (t) => {
  const hex = (source: object, destination: object): string =>
    proxyHeader(2, source, destination).toString('hex');
  t.equal(
    hex({ address: '192.0.2.1', port: 56_324 }, { address: '198.51.100.2', port: 443 }),
    `${V2}2111000cc0000201c6336402dc0401bb`,
  );
  t.equal(
    hex({ address: '2001:db8::1', port: 1 }, { address: '::1', port: 65_535 }),
    `${V2}2121002420010db8000000000000000000000001000000000000000000000000000000010001ffff`,
  );
  t.equal(hex({}, {}), `${V2}20000000`);
});

for (const version of [1, 2] as const) {
  t.test(`version ${version} comes before the client's bytes, and is not counted`, async (t) => {
    const rig = new TcpRig(t);
    const server = await tcpServer(t);
    await rig.serve([server.endpoint]);
    // It counts for new connections from this change on.
    const port = await rig.serve([server.endpoint], { proxyProtocol: version });
    const client = await tcpClient(t, port);
    const accepted = await server.next();
    const source = { address: '127.0.0.1', port: client.localPort };
    const header = proxyHeader(version, source, { address: '127.0.0.1', port });
    let got = Buffer.alloc(0);
    accepted.on('data', (chunk: Buffer) => (got = Buffer.concat([got, chunk])));
    await until(() => got.length >= header.length);
    t.strictSame(got, header, 'though the client has not sent anything');
    client.end('hello');
    await until(() => got.length >= header.length + 5);
    t.strictSame(got.subarray(header.length), Buffer.from('hello'));
    accepted.end('bye');
    t.equal(String(await readAll(client)), 'bye');
    t.match(rig.counters, { bytesIn: 5, bytesOut: 3 });
  });
}

t.test('a client that goes to another endpoint is announced there, too', async (t) => {
  const rig = new TcpRig(t);
  const victim = await deafEndpoint(t);
  const good = await tcpServer(t);
  const port = await rig.serve([victim.endpoint], { proxyProtocol: 1 });
  const client = await tcpClient(t, port);
  await until(() => rig.counters.active === 1);
  await rig.endpoints([victim.endpoint, good.endpoint]);
  await victim.kill();
  const accepted = await good.next();
  client.end('hello');
  t.equal(
    String(await readAll(accepted)),
    `PROXY TCP4 127.0.0.1 127.0.0.1 ${client.localPort} ${port}\r\nhello`,
  );
  t.match(rig.counters, { retries: 1, connectErrors: { reset: 1 } });
});
