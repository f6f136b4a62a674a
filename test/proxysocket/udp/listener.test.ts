import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import t from 'tap';
import { rejected, udpSessionEnded } from '../../../src/proxysocket/events.ts';
import { UdpBackend, UdpClient } from '../../support/udp-peers.ts';
import { ENGINE } from '../../support/engine-under-test.ts';
import { collect, freePort, openDescriptors, settledDescriptors } from '../../support/sockets.ts';
import { TcpRig, udpScene, udpSpec } from '../../support/tcp-rig.ts';
import { until } from '../../support/until.ts';

/** Linux serves all of 127.0.0.0/8, so a host with several addresses is easily had. */
const SKIP = process.platform === 'linux' ? false : 'needs several loopback addresses';
const UDP = { protocol: 'UDP' } as const;
const WILDCARD = { address: '0.0.0.0' } as const;

t.test('IPv4 and IPv6 wildcards share a port number, which no other engine gets', async (t) => {
  const { rig, backend, port, client } = await udpScene(t, {}, { listen: [WILDCARD] });
  await rig.serve([backend.spec], { ...UDP, name: 'test/six', listen: [{ address: '::', port }] });
  const client6 = await UdpClient.open(t, '::1');
  t.equal(await client.ask('four', port), 'four');
  t.equal(await client6.ask('six', port, '::1'), 'six');
  t.equal(client6.replies[0]?.from, `::1:${port}`);

  const { engine } = new TcpRig(t);
  const listen = ['0.0.0.0', '127.0.0.5'].map((address) => ({ address, port }));
  await engine.apply([{ kind: 'set', spec: udpSpec([], { listen }) }]);
  const taken = { state: 'failed', cause: 'EADDRINUSE' };
  t.match(engine.snapshot()[0]?.listeners, [taken, taken], 'despite shared sockets');
});

t.test('a wildcard listener answers from the address that was asked', { skip: SKIP }, async (t) => {
  const addresses = ['127.0.0.1', '127.0.0.7', '127.1.2.3'];
  const hostAddresses = () => addresses.map((address) => ({ address, loopback: true }));
  const before = await settledDescriptors();
  const spec = { listen: [WILDCARD] };
  const { rig, backend, port, client } = await udpScene(t, { hostAddresses }, spec);
  for (const address of [...addresses, ...addresses]) {
    t.equal(await client.ask(`to ${address}`, port, address), `to ${address}`);
    t.equal(client.replies.at(-1)?.from, `${address}:${port}`);
  }
  t.match(rig.counters, { active: 3, connections: 3 }, 'each address has a session of its own');
  t.equal(backend.peers, 3);
  // Backend, client, listener and three sessions; then a poller, or a socket for each address.
  t.equal(openDescriptors(), before + 6 + (ENGINE === 'linux' ? 1 : 3));
});

t.test('a removed service port ends its sessions and frees its port at once', async (t) => {
  const ended = collect(t, udpSessionEnded);
  const { rig, port, client } = await udpScene(t);
  await client.ask('x', port);
  await rig.remove();
  t.same(rig.engine.snapshot(), []);
  t.match(ended, [{ reason: 'service-gone' }]);

  const probe = createSocket('udp4');
  probe.connect(port, '127.0.0.1');
  await once(probe, 'connect');
  probe.send('is anyone there?');
  const [error] = (await once(probe, 'error')) as [NodeJS.ErrnoException];
  probe.close();
  t.equal(error.code, 'ECONNREFUSED', 'T2 (kept): port unreachable after the service is gone');
});

t.test('a listener moves to another service port with its sockets', { skip: SKIP }, async (t) => {
  const ended = collect(t, udpSessionEnded);
  const [a, b] = [await UdpBackend.named(t, 'A'), await UdpBackend.named(t, 'B')];
  const addresses = ['127.0.0.1', '127.0.0.7', '127.0.0.8'];
  const hostAddresses = () => addresses.slice(0, 2).map((address) => ({ address, loopback: true }));
  const listen = [{ ...WILDCARD, port: await freePort() }] as const;
  const options = { hostAddresses, endpoints: [a.spec] };
  const { rig, port, client } = await udpScene(t, options, { listen });
  for (const address of addresses) t.equal(await client.ask('x', port, address), 'A');
  const spec = udpSpec([b.spec], { name: 'test/latter', listen });
  const { name } = rig;
  await rig.engine.apply([
    { kind: 'remove', name },
    { kind: 'set', spec },
  ]);
  const gone = { servicePort: name, reason: 'service-gone' };
  t.match(ended, [gone, gone, gone]);
  for (const address of addresses) t.equal(await client.ask('x', port, address), 'B');

  rig.name = spec.name;
  await rig.serve([b.spec], { ...UDP, name: spec.name, listen });
  t.equal(rig.counters.active, 3, 'nothing ends when nothing changes');
  await rig.serve([b.spec], {
    ...UDP,
    name: spec.name,
    listen: [{ ...listen[0], traffic: 'external' }],
  });
  t.equal(rig.counters.active, 0, 'other traffic may have other endpoints');
});

t.test('clients outside the source ranges are dropped, counted, and reported once', async (t) => {
  const refused = collect(t, rejected);
  const port = await freePort();
  const from = (...sourceRanges: string[]) => ({ listen: [{ port, sourceRanges }] });
  const { rig, backend } = await udpScene(t, {}, from('127.0.0.2/32', '10.0.0.0/8'));
  const [inside, outside] = [await UdpClient.open(t, '127.0.0.2'), await UdpClient.open(t)];

  outside.send('1', port);
  outside.send('2', port);
  t.equal(await inside.ask('let me in', port), 'let me in');
  await until(() => rig.counters.datagramsDropped === 2);
  t.match(rig.counters, { rejectedSource: 1, connections: 1 });
  t.match(refused, [{ reason: 'source', remoteAddress: `127.0.0.1:${outside.port}` }]);
  t.equal(backend.received.length, 1);

  await rig.serve([backend.spec], { ...UDP, name: rig.name, ...from('127.0.0.1/32') });
  t.equal(rig.counters.active, 0, 'who is shut out now has no session any more');
  t.equal(await outside.ask('and now?', port), 'and now?');

  await rig.serve([backend.spec], { ...UDP, name: rig.name, ...from() });
  t.equal(rig.counters.active, 1, 'who is still let in keeps the session');
  t.equal(await inside.ask('all', port), 'all');
});
