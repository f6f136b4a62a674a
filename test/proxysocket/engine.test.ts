/** What an engine does, whatever its transports. */
import { once } from 'node:events';
import t from 'tap';
import {
  listenerOpened,
  relayEnded,
  relayStarted,
  tcpAccepted,
} from '../../src/proxysocket/events.ts';
import type { ListenSpec } from '../../src/proxysocket/spec.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { FakeHost, listenSpec } from '../support/fake-host.ts';
import { collect } from '../support/sockets.ts';
import * as peers from '../support/tcp-peers.ts';
import { echo, relayed, TcpRig, tcpScene, tcpSpec, udpSpec } from '../support/tcp-rig.ts';
import { UdpClient } from '../support/udp-peers.ts';
import { until } from '../support/until.ts';

t.test('a closed engine takes no changes and tries nothing again', async (t) => {
  for (const how of ['close', 'destroy'] as const) {
    const host = new FakeHost();
    host.tcp.errors.set('10.0.0.2:80', 'EADDRNOTAVAIL');
    await host.set(listenSpec('a', ['10.0.0.1:80', '10.0.0.2:80']));
    await Promise.all([host[how](), host[how]()]);
    await host[how]();
    const { attempts } = host.tcp;
    host.clock.advance(60_000);
    t.equal(host.tcp.attempts, attempts);
    t.equal(host.tcp.size, 0);
    t.same(host.snapshot(), []);
    await t.rejects(host.set(listenSpec('b', [])), { code: 'KPNG_SINK_FAILED' });
  }
});

t.test('closing waits for relays, which continue; destroying does not', async (t) => {
  const { rig, client } = await relayed(t, {}, echo);
  await until(() => rig.counters.active === 1);
  let closed = false;
  const closing = rig.engine.close().then(() => (closed = true));
  await until(() => rig.snapshot().draining === true);
  client.write('still there');
  t.equal(String((await once(client, 'data'))[0]), 'still there');
  t.equal(closed, false);
  client.end();
  await closing;
  t.same(rig.engine.snapshot(), []);
});

t.test('a removed service port stays in the snapshot while its relays run', async (t) => {
  const { rig, server, port } = await tcpScene(t);
  t.equal(await peers.request(t, port, 'first'), 'first');
  const client = await peers.tcpClient(t, port);
  await until(() => rig.counters.active === 1);

  await rig.remove();
  t.match(rig.snapshot(), { draining: true, listeners: [], endpoints: 0 });
  const named = rig.engine.snapshot().map(({ name }) => name);
  t.same(rig.engine.names(), named, 'a reader that takes it in parts misses nothing');
  t.match(rig.counters, { connections: 2, active: 1, bytesIn: 5 });
  t.match(rig.engine.activity(), { servicePorts: 1, active: 1 });
  // Set again meanwhile, its counters continue: what a scrape sees never goes back.
  await rig.serve([server.endpoint]);
  t.notOk('draining' in rig.snapshot());
  t.equal(await peers.request(t, rig.port(), 'again'), 'again');
  t.match(rig.counters, { connections: 3, bytesIn: 10 });

  await rig.remove();
  client.end();
  await until(() => rig.engine.snapshot().length === 0);
  await rig.serve([server.endpoint]);
  t.equal(rig.counters.connections, 0, 'after the last relay it is a new one');
});

t.test('a name that comes back with another protocol has new counters', async (t) => {
  const { rig, client } = await relayed(t, {}, echo);
  await until(() => rig.counters.active === 1);
  await rig.engine.apply([{ kind: 'set', spec: { ...tcpSpec([]), protocol: 'UDP' } }]);
  t.match(rig.snapshot(), { protocol: 'UDP', counters: { connections: 0, active: 0 } });
  client.end('bye');
  t.equal(String((await once(client, 'data'))[0]), 'bye');
});

t.test('the node itself is not an outside client, and gets any endpoint', async (t) => {
  const rig = new TcpRig(t);
  const [near, far] = [await peers.namedServer(t, 'near'), await peers.namedServer(t, 'far')];
  const endpoints = [
    { ...near.endpoint, internal: true, external: true },
    { ...far.endpoint, internal: true, external: false },
  ];
  const listen = (clusterClients?: ListenSpec['clusterClients']) => [
    { traffic: 'external' as const, ...(clusterClients && { clusterClients }) },
  ];
  const port = await rig.serve(endpoints, { listen: listen() });
  const answers = async () => [await peers.request(t, port), await peers.request(t, port)].sort();
  t.same(await answers(), ['near', 'near']);
  await rig.serve(endpoints, { listen: listen({ networks: [], traffic: 'internal' }) });
  t.equal(rig.port(), port, 'without a new socket');
  t.same(await answers(), ['far', 'near']);
});

t.test('the events of a connection name its four addresses', async (t) => {
  const [accepted, started] = [collect(t, tcpAccepted), collect(t, relayStarted)];
  const ended = collect(t, relayEnded);
  const { server, port } = await tcpScene(t, {}, { name: 'ns/web:http' });
  const client = await peers.tcpClient(t, port);
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
  await peers.readAll(client);
  await until(() => ended.length === 1);
  const { servicePort, inRemoteAddress: remoteAddress, inLocalAddress: localAddress } = addresses;
  t.match(accepted, [{ servicePort, remoteAddress, localAddress }]);
  t.same(started, [addresses]);
  t.match(ended, [{ ...addresses, bytesIn: 5, bytesOut: 5, reason: 'closed' }]);
  t.ok((ended[0]?.durationMs ?? -1) >= 0);
});

t.test('the system’s errors: in use, not available, wildcards', async (t) => {
  const clock = new FakeClock();
  const rig = new TcpRig(t, { clock });
  const opened = collect(t, listenerOpened);
  const other = await peers.tcpServer(t);
  const endpoints = [(await peers.namedServer(t, 'x')).endpoint];
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
  t.equal(await peers.request(t, other.port), 'x');
});

t.test('clients learn of a drain for their traffic only', async (t) => {
  const rig = new TcpRig(t);
  const closed = { ...peers.endpointAt(9), internal: false, external: false };
  const drained = { ...closed, drained: ['internal'] } as const;
  const listen = [{}, { traffic: 'external' }] as const;
  const spec = udpSpec([drained], { listen });
  await rig.engine.apply([{ kind: 'set', spec }]);
  await rig.serve([drained], { listen });
  t.equal(await peers.connectionEnd(t, rig.port()), 'ECONNRESET');
  t.match(rig.counters, { rejectedDrained: 1, rejectedNoEndpoint: 0 });
  t.equal(await peers.connectionEnd(t, rig.port(undefined, 1)), 'ECONNRESET');
  await rig.endpoints([]);
  t.equal(await peers.connectionEnd(t, rig.port()), 'ECONNRESET');
  t.match(rig.counters, { rejectedDrained: 1, rejectedNoEndpoint: 2 }, 'the drain is over');
  const counters = () => rig.snapshot(spec.name).counters;
  const client = await UdpClient.open(t);
  for (const index of [0, 1]) client.send('anybody?', rig.port(spec.name, index));
  await until(() => counters().datagramsDropped === 2);
  t.match(counters(), { rejectedDrained: 1, rejectedNoEndpoint: 1 });
});
