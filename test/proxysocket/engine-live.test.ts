import { once } from 'node:events';
import t from 'tap';
import {
  listenerOpened,
  rejected,
  relayEnded,
  relayStarted,
  tcpAccepted,
} from '../../src/proxysocket/events.ts';
import type { ListenSpec } from '../../src/proxysocket/spec.ts';
import { FakeClock } from '../support/fake-clock.ts';
import {
  connectionEnd,
  echoServer,
  endOf,
  namedServer,
  readAll,
  request,
  tcpClient,
  tcpServer,
} from '../support/tcp-peers.ts';
import { TcpRig, tcpSpec } from '../support/tcp-rig.ts';
import { until } from '../support/until.ts';
import { collect } from '../support/sockets.ts';

t.test('clients outside the source ranges are reset', async (t) => {
  const rig = new TcpRig(t);
  const refused = collect(t, rejected);
  const server = await namedServer(t, 'in');
  const listen = [{ sourceRanges: ['127.0.0.2/32', '127.1.0.0/16'] }];
  const port = await rig.serve([server.endpoint], { listen });
  t.equal(await request(t, port, '', { localAddress: '127.0.0.2' }), 'in');
  t.equal(await request(t, port, '', { localAddress: '127.1.2.3' }), 'in');
  t.equal(await connectionEnd(t, port, '127.0.0.3'), 'ECONNRESET');
  t.match(rig.counters, { connections: 3, rejectedSource: 1 });
  t.match(refused, [{ reason: 'source', remoteAddress: /^127\.0\.0\.3:/ }]);
  t.equal(server.sockets.length, 2);
  // Let everybody in, without a new socket.
  await rig.serve([server.endpoint], { listen: [{}] });
  t.equal(rig.port(), port);
  t.equal(await request(t, port, '', { localAddress: '127.0.0.3' }), 'in');
});

t.test('the node itself is not an outside client, and gets any endpoint', async (t) => {
  const rig = new TcpRig(t);
  const [near, far] = [await namedServer(t, 'near'), await namedServer(t, 'far')];
  const endpoints = [
    { ...near.endpoint, internal: true, external: true },
    { ...far.endpoint, internal: true, external: false },
  ];
  const listen = (clusterClients?: ListenSpec['clusterClients']) => [
    { traffic: 'external' as const, ...(clusterClients && { clusterClients }) },
  ];
  const port = await rig.serve(endpoints, { listen: listen() });
  const answers = async () => [await request(t, port), await request(t, port)].sort();
  t.same(await answers(), ['near', 'near']);
  await rig.serve(endpoints, { listen: listen({ networks: [], traffic: 'internal' }) });
  t.equal(rig.port(), port, 'without a new socket');
  t.same(await answers(), ['far', 'near']);
  const local = { ...near.endpoint, internal: true, external: true };
  const remote = { ...far.endpoint, internal: false, external: false, cluster: true };
  await rig.serve([local, remote], { listen: listen({ networks: [], traffic: 'cluster' }) });
  t.same(await answers(), ['far', 'far']);
  await rig.endpoints([local, { ...remote, cluster: false }]);
  t.equal(await connectionEnd(t, port), 'ECONNRESET', 'no endpoint of that kind');
});

t.test('the events of a connection name its four addresses', async (t) => {
  const rig = new TcpRig(t);
  const [accepted, started, ended] = [
    collect(t, tcpAccepted),
    collect(t, relayStarted),
    collect(t, relayEnded),
  ];
  const server = await echoServer(t);
  const port = await rig.serve([server.endpoint], { name: 'ns/web:http' });
  const client = await tcpClient(t, port);
  const socket = await server.next();
  const addresses = {
    servicePort: 'ns/web:http',
    endpoint: `127.0.0.1:${server.port}`,
    inRemoteAddress: `127.0.0.1:${client.localPort}`,
    inLocalAddress: `127.0.0.1:${port}`,
    outLocalAddress: `127.0.0.1:${socket.remotePort}`,
    outRemoteAddress: `127.0.0.1:${server.port}`,
  };
  client.end('12345');
  await readAll(client);
  await until(() => ended.length === 1);
  t.match(accepted, [
    {
      servicePort: 'ns/web:http',
      remoteAddress: addresses.inRemoteAddress,
      localAddress: addresses.inLocalAddress,
    },
  ]);
  t.same(started, [addresses]);
  t.match(ended, [{ ...addresses, bytesIn: 5, bytesOut: 5, reason: 'closed' }]);
  t.ok((ended[0]?.durationMs ?? -1) >= 0);
});

t.test('relays of a removed endpoint continue, or end after the grace period', async (t) => {
  for (const endpointGraceMs of [0, 5000]) {
    const clock = new FakeClock();
    const rig = new TcpRig(t, { clock });
    const ended = collect(t, relayEnded);
    const [one, two] = [await echoServer(t), await echoServer(t)];
    const port = await rig.serve([one.endpoint, two.endpoint]);
    const [first, second] = [await tcpClient(t, port), await tcpClient(t, port)];
    await until(() => rig.counters.active === 2);
    await rig.engine.setLimits?.({ endpointGraceMs });
    await rig.endpoints([two.endpoint]);
    clock.advance(4999);
    first.write('grace');
    t.equal(String((await once(first, 'data'))[0]), 'grace');
    const end = endOf(first);
    clock.advance(1);
    if (endpointGraceMs === 0) {
      first.end();
      t.equal(await end, 'FIN');
    } else {
      t.equal(await end, 'ECONNRESET');
      await until(() => ended.length > 0);
      t.match(ended, [{ reason: 'endpoint-gone' }]);
    }
    second.write('untouched');
    t.equal(String((await once(second, 'data'))[0]), 'untouched');
  }
});

t.test('the system’s errors: in use, not available, wildcards', async (t) => {
  const clock = new FakeClock();
  const rig = new TcpRig(t, { clock });
  const opened = collect(t, listenerOpened);
  const other = await tcpServer(t);
  const endpoints = [(await namedServer(t, 'x')).endpoint];
  const spec = tcpSpec(endpoints, {
    listen: [
      { port: other.port },
      { address: '198.51.100.7' },
      { address: '::', port: other.port },
    ],
  });
  await rig.engine.apply([{ kind: 'set', spec }]);
  t.match(rig.snapshot().listeners, [
    { state: 'failed', code: 'KPNG_LISTEN_ADDRESS_IN_USE', cause: 'EADDRINUSE' },
    { state: 'failed', code: 'KPNG_LISTEN_ADDRESS_NOT_AVAILABLE', cause: 'EADDRNOTAVAIL' },
    { state: 'listening', boundPort: other.port },
  ]);
  await other.kill();
  clock.advance(1500);
  await until(() => opened.length === 2);
  t.equal(await request(t, other.port), 'x');

  // From an address to the wildcard and back, in one batch each.
  for (const address of ['0.0.0.0', '127.0.0.1', '0.0.0.0']) {
    await rig.serve(endpoints, { listen: [{ address, port: other.port }] });
    t.equal(await request(t, other.port), 'x');
  }
});
