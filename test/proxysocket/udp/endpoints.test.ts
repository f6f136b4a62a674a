import {
  connectFailed,
  endpointPicked,
  rejected,
  udpSessionEnded,
  udpSessionStarted,
} from '../../../src/proxysocket/events.ts';
import { collect, freePort } from '../../support/sockets.ts';
import { endpointAt } from '../../support/tcp-peers.ts';
import { until } from '../../support/until.ts';
import { MAX_HOPS } from '../../../src/proxysocket/udp/acceptor.ts';
import { UdpBackend, UdpClient, UdpRig, silent, udpScene } from '../../support/udp-rig.ts';
import t from 'tap';

t.test(
  'V18 (different): the session of a removed endpoint ends, the client gets another',
  async (t) => {
    const ended = collect(t, udpSessionEnded);
    const [a, b] = [await UdpBackend.named(t, 'A'), await UdpBackend.named(t, 'B')];
    const { rig, owner, port } = await udpScene(t, { endpoints: [a.spec, b.spec] });
    const [one, two] = [await UdpClient.open(t), await UdpClient.open(t)];
    t.equal(await one.ask('x', port), 'A');
    t.equal(await two.ask('x', port), 'B');

    rig.update(owner, [b.spec]);
    t.equal(owner.counters.active, 1, 'without waiting for anything');
    t.match(ended, [{ reason: 'endpoint-gone', endpoint: `127.0.0.1:${a.spec.port}` }]);
    t.equal(rig.descriptors.used, 1);

    t.equal(await one.ask('again', port), 'B', 'from the same client port');
    t.equal(await two.ask('again', port), 'B');
    t.equal(b.peers, 2);
  },
);

t.test('an ICMP error ends the session, and the next datagram goes elsewhere', async (t) => {
  const failures = collect(t, connectFailed);
  const ended = collect(t, udpSessionEnded);
  const [dead, alive] = [endpointAt(await freePort()), await UdpBackend.named(t, 'alive')];
  const { owner, port, client } = await udpScene(t, { endpoints: [dead, alive.spec] });

  client.send('lost', port);
  await until(() => owner.counters.connectErrors.refused === 1);
  t.match(ended, [{ reason: 'icmp-error', endpoint: `127.0.0.1:${dead.port}` }]);
  t.match(failures, [{ cause: 'refused', attempt: 1, endpoint: `127.0.0.1:${dead.port}` }]);
  t.equal(owner.counters.active, 0);
  t.equal(owner.counters.datagramsDropped, 1);

  for (let index = 0; index < 4; index += 1) {
    const other = await UdpClient.open(t);
    t.equal(await other.ask('x', port), 'alive', 'the dead endpoint is skipped');
  }
  t.equal(await client.ask('again', port), 'alive');
  t.equal(owner.counters.connectErrors.refused, 1);
});

t.test('an endpoint that never answers is not failing any more without ICMP errors', async (t) => {
  const { clock, owner, port, client } = await udpScene(t, { answer: silent });
  for (const endpoint of owner.balancer.endpoints())
    owner.balancer.connectFailed(endpoint, 'refused');
  t.equal(owner.balancer.failing, 1);
  client.send('x', port);
  await until(() => owner.counters.datagramsIn === 1);
  clock.advance(9000);
  t.equal(owner.balancer.failing, 1, 'the kernel may still look for it');
  clock.advance(1001);
  t.equal(owner.balancer.failing, 0);
});

t.test('a backend that dies in a busy flow is replaced within a few datagrams', async (t) => {
  const [a, b] = [await UdpBackend.named(t, 'A'), await UdpBackend.named(t, 'B')];
  const { owner, port, client } = await udpScene(t, { endpoints: [a.spec, b.spec] });
  // Pairs: with an even number of datagrams for each wake-up, an error report can be consumed by
  // the second one each time.
  for (let index = 0; index < 20; index += 1) {
    client.send('x', port);
    await client.ask('y', port);
  }
  await a.close();

  let lost = 0;
  while (!client.replies.some(({ message }) => message.toString() === 'B')) {
    client.send('x', port);
    client.send('y', port);
    lost += 2;
    const before = owner.counters.datagramsIn + owner.counters.datagramsDropped;
    await until(() => owner.counters.datagramsIn + owner.counters.datagramsDropped > before);
    if (lost > 200) break;
  }
  t.ok(lost <= 200, `${lost} datagrams`);
  t.equal(owner.counters.connectErrors.refused, 1);
  t.equal(owner.counters.active, 1);
});

t.test('an endpoint that cannot be connected is replaced before anything is lost', async (t) => {
  const picked = collect(t, endpointPicked);
  const started = collect(t, udpSessionStarted);
  const alive = await UdpBackend.named(t, 'alive');
  // Without permission to broadcast the system refuses to connect to this address.
  const broadcast = endpointAt(9, '255.255.255.255');
  const { rig, owner, port, client } = await udpScene(t, { endpoints: [broadcast, alive.spec] });

  t.equal(await client.ask('first', port), 'alive');
  t.equal(alive.received[0]?.message.toString(), 'first', 'the first datagram was kept');
  t.match(owner.counters, { retries: 1, connections: 1, active: 1, datagramsDropped: 0 });
  // Where there is no way to any network, that is what the system says.
  const { other, unreachable } = owner.counters.connectErrors;
  t.equal(other + unreachable, 1);
  t.match(picked, [
    { endpoint: '255.255.255.255:9', attempt: 1 },
    { endpoint: `127.0.0.1:${alive.spec.port}`, attempt: 2 },
  ]);
  t.equal(started.length, 1, 'a session starts when it is connected');
  rig.update(owner, []);
  t.equal(owner.counters.active, 0, 'the session belongs to the endpoint that it got in the end');
});

t.test('without a connectable endpoint a client is refused once, datagrams counted', async (t) => {
  const refused = collect(t, rejected);
  const { rig, owner, port, client } = await udpScene(t, {
    endpoints: [endpointAt(9, '255.255.255.255'), endpointAt(9, 'fe80::1')],
  });

  for (let index = 0; index < 3; index += 1) client.send('x', port);
  await until(() => owner.counters.datagramsDropped === 3);
  t.match(owner.counters, { rejectedConnectFailed: 1, active: 0 });
  t.match(refused, [{ reason: 'connect-failed', protocol: 'UDP', servicePort: owner.name }]);
  t.equal(refused.length, 1);
  t.equal(rig.descriptors.used, 0);
});

t.test('without endpoints datagrams are dropped, and a client port counts once', async (t) => {
  const refused = collect(t, rejected);
  const { clock, rig, backend, owner, port, client } = await udpScene(t, { endpoints: [] });
  const other = await UdpClient.open(t);

  for (let index = 0; index < 5; index += 1) client.send('x', port);
  other.send('x', port);
  await until(() => owner.counters.datagramsDropped === 6);
  t.match(owner.counters, { rejectedNoEndpoint: 2, connections: 0, active: 0 });
  t.equal(refused.length, 2);
  t.match(refused[0], { reason: 'no-endpoint', remoteAddress: `127.0.0.1:${client.port}` });

  rig.update(owner, [backend.spec]);
  t.equal(await client.ask('now', port), 'now', 'served as soon as there is one');

  rig.update(owner, []);
  clock.advance(120_000);
  client.send('x', port);
  await until(() => owner.counters.datagramsDropped === 7);
  t.equal(owner.counters.rejectedNoEndpoint, 3, 'much later it would be another session');
});

t.test('families cross when a service has endpoints of the other one only', async (t) => {
  const rig = new UdpRig(t);
  const [four, six] = [await UdpBackend.named(t, '4'), await UdpBackend.named(t, '6', '::1')];
  const onlySix = await rig.listen(rig.service([six.spec]));
  const onlyFour = await rig.listen(rig.service([four.spec]), { address: '::1' });
  const both = await rig.listen(rig.service([six.spec, four.spec]));
  const [client4, client6] = [await UdpClient.open(t), await UdpClient.open(t, '::1')];

  t.equal(await client4.ask('x', onlySix.boundPort), '6');
  t.equal(await client6.ask('x', onlyFour.boundPort, '::1'), '4');
  t.equal(await client4.ask('x', both.boundPort), '4', 'its own family is preferred');
  const same = await rig.listen(rig.service([four.spec, six.spec]), { address: '::1' });
  t.equal(same.family, 6);
  t.equal(await client6.ask('x', same.boundPort, '::1'), '6');
  t.equal(client6.replies[1]?.from, `::1:${same.boundPort}`);
});

t.test('a service that is its own endpoint keeps only a few sessions busy', async (t) => {
  const { rig, owner, listener, client } = await udpScene(t, { endpoints: [] });
  rig.update(owner, [endpointAt(listener.boundPort)]);

  for (let sent = 1; sent <= 3; sent += 1) {
    client.send('x', listener.boundPort);
    await until(() => owner.counters.datagramsDropped === sent);
  }
  t.match(owner.counters, { active: MAX_HOPS, connections: MAX_HOPS, rejectedLimit: 1 });
  t.equal(owner.counters.datagramsIn, 3 * MAX_HOPS);
});

t.test('an endpoint that is removed while its socket is being connected', async (t) => {
  const { rig, owner, port, client } = await udpScene(t);
  const onPicked = (): void => process.nextTick(() => rig.update(owner, []));
  endpointPicked.subscribe(onPicked);
  t.teardown(() => endpointPicked.unsubscribe(onPicked));
  client.send('x', port);
  await until(() => owner.counters.connections === 1 && owner.counters.active === 0);
  const { datagramsIn, datagramsDropped } = owner.counters;
  t.equal(datagramsIn + datagramsDropped, 1, 'its datagram counts');
  t.equal(rig.descriptors.used, 0);
});
