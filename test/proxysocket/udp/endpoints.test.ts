import * as events from '../../../src/proxysocket/events.ts';
import { collect, freePort } from '../../support/sockets.ts';
import { endpointAt } from '../../support/tcp-peers.ts';
import { udpScene } from '../../support/tcp-rig.ts';
import { until } from '../../support/until.ts';
import { MAX_HOPS } from '../../../src/proxysocket/udp/acceptor.ts';
import { silent, UdpBackend, UdpClient } from '../../support/udp-peers.ts';
import t from 'tap';

/** Without permission to broadcast the system refuses to connect to this address. */
const BROADCAST = endpointAt(9, '255.255.255.255');

t.test('V18 (different): the session of a removed endpoint ends, others live on', async (t) => {
  const ended = collect(t, events.udpSessionEnded);
  const [a, b] = [await UdpBackend.named(t, 'A'), await UdpBackend.named(t, 'B')];
  const { rig, port } = await udpScene(t, { endpoints: [a.spec, b.spec] });
  const [one, two] = [await UdpClient.open(t), await UdpClient.open(t)];
  t.equal(await one.ask('x', port), 'A');
  t.equal(await two.ask('x', port), 'B');

  await rig.endpoints([b.spec]);
  t.equal(rig.counters.active, 1, 'without waiting for anything');
  t.match(ended, [{ reason: 'endpoint-gone', endpoint: `127.0.0.1:${a.spec.port}` }]);
  t.equal(rig.engine.descriptors.used, 1);

  t.equal(await one.ask('again', port), 'B', 'from the same client port');
  t.equal(await two.ask('again', port), 'B');
  t.equal(b.peers, 2);
});

t.test('an ICMP error ends the session, and the next datagram goes elsewhere', async (t) => {
  const failures = collect(t, events.connectFailed);
  const ended = collect(t, events.udpSessionEnded);
  const [dead, alive] = [endpointAt(await freePort()), await UdpBackend.named(t, 'alive')];
  const { rig, port, client } = await udpScene(t, { endpoints: [dead, alive.spec] });

  client.send('lost', port);
  await until(() => rig.counters.connectErrors.refused === 1);
  const endpoint = `127.0.0.1:${dead.port}`;
  t.match(ended, [{ reason: 'icmp-error', endpoint }]);
  t.match(failures, [{ cause: 'refused', attempt: 1, endpoint }]);
  t.match(rig.counters, { active: 0, datagramsDropped: 1 });

  for (let index = 0; index < 4; index += 1) {
    const other = await UdpClient.open(t);
    t.equal(await other.ask('x', port), 'alive', 'the dead endpoint is skipped');
  }
  t.equal(await client.ask('again', port), 'alive');
  t.equal(rig.counters.connectErrors.refused, 1);
});

t.test('an endpoint that never answers is not failing any more without ICMP errors', async (t) => {
  const spec = endpointAt(await freePort());
  const { clock, rig, port, client } = await udpScene(t, { endpoints: [spec] });
  const failing = async () =>
    (await rig.engine.inspect({ failing: true, maxConnections: 0 })).failing?.size;
  client.send('refused', port);
  await until(() => rig.counters.connectErrors.refused === 1);
  const backend = await UdpBackend.start(t, silent, spec);
  client.send('x', port);
  await until(() => backend.received.length === 1);
  clock.advance(9000);
  t.equal(await failing(), 1, 'the kernel may still look for it');
  clock.advance(1001);
  t.equal(await failing(), 0);
});

t.test('a backend that dies in a busy flow is replaced within a few datagrams', async (t) => {
  const [a, b] = [await UdpBackend.named(t, 'A'), await UdpBackend.named(t, 'B')];
  const { rig, port, client } = await udpScene(t, { endpoints: [a.spec, b.spec] });
  // Pairs: with an even number of datagrams for each wake-up, an error report can be consumed by
  // the second one each time.
  for (let index = 0; index < 20; index += 1) {
    client.send('x', port);
    await client.ask('y', port);
  }
  await a.close();

  const seen = () => rig.counters.datagramsIn + rig.counters.datagramsDropped;
  let lost = 0;
  while (lost <= 200 && !client.replies.some(({ message }) => String(message) === 'B')) {
    const before = seen();
    client.send('x', port);
    client.send('y', port);
    lost += 2;
    await until(() => seen() > before);
  }
  t.ok(lost <= 200, `${lost} datagrams`);
  t.equal(rig.counters.connectErrors.refused, 1);
  t.equal(rig.counters.active, 1);
});

t.test('an endpoint that cannot be connected is replaced before anything is lost', async (t) => {
  const picked = collect(t, events.endpointPicked);
  const started = collect(t, events.udpSessionStarted);
  const alive = await UdpBackend.named(t, 'alive');
  const { rig, port, client } = await udpScene(t, { endpoints: [BROADCAST, alive.spec] });

  t.equal(await client.ask('first', port), 'alive');
  t.equal(String(alive.received[0]?.message), 'first', 'the first datagram was kept');
  t.match(rig.counters, { retries: 1, connections: 1, active: 1, datagramsDropped: 0 });
  // Where there is no way to any network, that is what the system says.
  const { other, unreachable } = rig.counters.connectErrors;
  t.equal(other + unreachable, 1);
  t.match(picked, [
    { endpoint: '255.255.255.255:9', attempt: 1 },
    { endpoint: `127.0.0.1:${alive.spec.port}`, attempt: 2 },
  ]);
  t.equal(started.length, 1, 'a session starts when it is connected');
  await rig.endpoints([]);
  t.equal(rig.counters.active, 0, 'the session belongs to the endpoint that it got in the end');
});

t.test('a client port that is refused counts once, its datagrams each', async (t) => {
  const refused = collect(t, events.rejected);
  const endpoints = [BROADCAST, endpointAt(9, 'fe80::1')];
  const { clock, rig, backend, port, client } = await udpScene(t, { endpoints });
  const remoteAddress = `127.0.0.1:${client.port}`;

  for (let index = 0; index < 3; index += 1) client.send('x', port);
  await until(() => rig.counters.datagramsDropped === 3);
  t.match(rig.counters, { rejectedConnectFailed: 1, active: 0 });
  t.equal(rig.engine.descriptors.used, 0);

  await rig.endpoints([]);
  const other = await UdpClient.open(t);
  for (let index = 0; index < 5; index += 1) client.send('x', port);
  other.send('x', port);
  await until(() => rig.counters.datagramsDropped === 9);
  t.match(rig.counters, { rejectedNoEndpoint: 2, active: 0 });
  t.match(refused, [
    { reason: 'connect-failed', protocol: 'UDP', servicePort: rig.name, remoteAddress },
    { reason: 'no-endpoint', remoteAddress },
    { reason: 'no-endpoint' },
  ]);

  await rig.endpoints([backend.spec]);
  t.equal(await client.ask('now', port), 'now', 'served as soon as there is one');
  await rig.endpoints([]);
  clock.advance(120_000);
  client.send('x', port);
  await until(() => rig.counters.datagramsDropped === 10);
  t.equal(rig.counters.rejectedNoEndpoint, 3, 'much later it would be another session');
});

t.test('families cross when a service has endpoints of the other one only', async (t) => {
  const [four, six] = [await UdpBackend.named(t, '4'), await UdpBackend.named(t, '6', '::1')];
  const listen = [{}, { address: '::1' }];
  const { rig, port, client } = await udpScene(t, { endpoints: [six.spec, four.spec] }, { listen });
  const [port6, client6] = [rig.port(undefined, 1), await UdpClient.open(t, '::1')];
  t.equal(await client.ask('x', port), '4', 'its own family is preferred');
  t.equal(await client6.ask('x', port6, '::1'), '6');
  t.equal(client6.replies[0]?.from, `::1:${port6}`);
  await rig.endpoints([six.spec]);
  t.equal(await client.ask('x', port), '6');
  await rig.endpoints([four.spec]);
  t.equal(await client6.ask('x', port6, '::1'), '4');
});

t.test('a service that is its own endpoint keeps only a few sessions busy', async (t) => {
  const { rig, port, client } = await udpScene(t, { endpoints: [] });
  await rig.endpoints([endpointAt(port)]);

  for (let sent = 1; sent <= 3; sent += 1) {
    client.send('x', port);
    await until(() => rig.counters.datagramsDropped === sent);
  }
  t.match(rig.counters, { active: MAX_HOPS, connections: MAX_HOPS, rejectedLimit: 1 });
  t.equal(rig.counters.datagramsIn, 3 * MAX_HOPS);
});

t.test('an endpoint that is removed while its socket is being connected', async (t) => {
  const { rig, port, client } = await udpScene(t);
  const onPicked = (): void => process.nextTick(() => void rig.endpoints([]));
  events.endpointPicked.subscribe(onPicked);
  t.teardown(() => events.endpointPicked.unsubscribe(onPicked));
  client.send('x', port);
  await until(() => rig.counters.connections === 1 && rig.counters.active === 0);
  const { datagramsIn, datagramsDropped } = rig.counters;
  t.equal(datagramsIn + datagramsDropped, 1, 'its datagram counts');
  t.equal(rig.engine.descriptors.used, 0);
});
