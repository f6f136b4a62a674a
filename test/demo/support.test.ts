import t from 'tap';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { parse } from 'yaml';
import { Endpoint } from '../../examples/support/endpoint.ts';
import { get } from '../../examples/support/http.ts';
import { parseMetrics, sumOf } from '../../examples/support/metrics.ts';
import { freePorts, portNear } from '../../examples/support/ports.ts';
import { renderState } from '../../examples/support/state-file.ts';
import { digestOf, digestOfStream, streamOf } from '../../examples/support/stream-bytes.ts';
import { openUdpClient } from '../../examples/support/udp.ts';
import { until } from '../../examples/support/until.ts';
import { counts, tally } from '../../examples/demo/screen.ts';

t.test('until returns what it finds, or reports what it waited for', async (t) => {
  let looks = 0;
  const found = await until('third look', () => ((looks += 1) === 3 ? 'here' : undefined), {
    every: 1,
  });
  t.equal(found, 'here');
  const cause = new Error('refused');
  await t.rejects(
    until('never', () => Promise.reject(cause), { within: 20, every: 1 }),
    { message: /never: not within 0\.02 s/, cause },
  );
});

t.test('a port in use is skipped, TCP and UDP', async (t) => {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  const { port: tcp } = server.address() as { port: number };
  t.not(await portNear('TCP', tcp, ['127.0.0.1']), tcp);

  const socket = createSocket('udp4').bind(0, '127.0.0.1');
  await once(socket, 'listening');
  t.teardown(() => socket.close());
  const { port: udp } = socket.address();
  t.not(await portNear('UDP', udp, ['127.0.0.1']), udp);
  t.equal(new Set(await freePorts('TCP', '127.0.0.1', 5)).size, 5);
  await t.rejects(portNear('TCP', 8080, ['192.0.2.1']), /does not have the address 192\.0\.2\.1/);
});

t.test('the same bytes come again for the same seed, of any length', async (t) => {
  for (const length of [0, 1, 262_144, 262_145, 1_000_003]) {
    const got = await digestOfStream(streamOf('seed', length));
    t.same(got, { digest: digestOf('seed', length), length });
  }
  t.not(digestOf('seed', 1000), digestOf('other', 1000));
  const bytes = Buffer.concat(await streamOf('seed', 4096).toArray());
  t.ok(new Set(bytes).size > 200, 'they look random');
});

t.test('an endpoint says its name, sends, takes, echoes, and is gone when killed', async (t) => {
  const address = '127.0.0.1';
  const [http = 0] = await freePorts('TCP', address, 1);
  const [echo = 0] = await freePorts('UDP', address, 1);
  const endpoint = new Endpoint('elm', address, { http, echo });
  await endpoint.start();
  t.teardown(() => endpoint.kill());
  const url = `http://${address}:${http}`;
  t.same(await get(`${url}/`), { status: 200, body: 'hello from elm\n' });
  const put = await fetch(`${url}/digest`, { method: 'PUT', body: 'abc' });
  t.equal(
    await put.text(),
    'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n',
    'SHA-256 of abc',
  );
  const bytes = await fetch(`${url}/bytes/5000`);
  t.same(await digestOfStream(bytes.body as unknown as AsyncIterable<Buffer>), {
    digest: digestOf('endpoint', 5000),
    length: 5000,
  });
  const client = await openUdpClient(address, echo);
  t.equal(await client.ask('hi'), 'elm says hi');
  client.close();
  endpoint.kill();
  await t.rejects(get(`${url}/`), { code: 'ECONNREFUSED' });
  endpoint.kill();
});

t.test('a state file has what the file source needs, in its spelling', (t) => {
  const text = renderState([
    {
      namespace: 'bakery',
      name: 'shop',
      clusterIP: '127.0.0.9',
      ports: [
        { name: 'http', protocol: 'TCP', port: 80, targetPort: 8080 },
        { name: 'dns', protocol: 'UDP', port: 53, targetPort: 5353 },
      ],
      affinitySeconds: 60,
      endpoints: [{ name: 'pod-1', address: '127.0.0.2' }],
    },
  ]);
  t.match(parse(text), {
    nodes: [{ name: 'loopback' }],
    services: [
      {
        service: {
          ips: { clusterips: { v4: ['127.0.0.9'] } },
          ports: [
            { name: 'http', protocol: 1, port: 80, targetport: 8080 },
            { name: 'dns', protocol: 2, port: 53, targetport: 5353 },
          ],
          sessionaffinity: { clientip: { timeoutseconds: 60 } },
        },
        endpoints: [
          {
            podname: 'pod-1',
            endpoint: {
              ips: { v4: ['127.0.0.2'] },
              portoverrides: [
                { name: 'http', port: 8080 },
                { name: 'dns', port: 5353 },
              ],
            },
            topology: { node: 'loopback' },
          },
        ],
      },
    ],
  });
  t.end();
});

t.test('metrics pages are read by name and label', (t) => {
  const samples = parseMetrics(
    '# HELP a x\n# TYPE a counter\na{service="shop",port="http"} 3\na{service="till"} 4\nab 9\n',
  );
  t.equal(sumOf(samples, 'a'), 7);
  t.equal(sumOf(samples, 'a', 'service="shop"'), 3);
  t.equal(sumOf(samples, 'ab'), 9);
  t.equal(sumOf(samples, 'missing'), 0);
  t.end();
});

t.test('answers are counted in order of the names', (t) => {
  t.equal(counts(['birch', 'alder', 'birch']), 'alder 1   birch 2');
  t.same([...tally([])], []);
  t.end();
});
