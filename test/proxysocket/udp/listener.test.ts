import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import t from 'tap';
import { rejected, udpSessionEnded } from '../../../src/proxysocket/events.ts';
import { UdpBackend, UdpClient, UdpRig, udpScene } from '../../support/udp-rig.ts';
import { ENGINE } from '../../support/engine-under-test.ts';
import { collect, openDescriptors, settledDescriptors } from '../../support/sockets.ts';
import { until } from '../../support/until.ts';

/** Linux serves all of 127.0.0.0/8, so a host with several addresses is easily had. */
const SKIP = process.platform === 'linux' ? false : 'needs several loopback addresses';
const WILDCARD = { address: '0.0.0.0' } as const;
const INTERNAL = { address: '127.0.0.1', port: 0, traffic: 'internal' } as const;

t.test('IPv4 and IPv6 wildcards share a port number', async (t) => {
  const rig = new UdpRig(t);
  const backend = await UdpBackend.start(t);
  const owner = rig.service([backend.spec]);
  const four = await rig.listen(owner, WILDCARD);
  const six = await rig.listen(owner, { address: '::', port: four.boundPort });
  const [client4, client6] = [await UdpClient.open(t), await UdpClient.open(t, '::1')];

  t.equal(six.family, 6);
  t.equal(await client4.ask('four', four.boundPort), 'four');
  t.equal(await client6.ask('six', six.boundPort, '::1'), 'six');
  t.equal(client6.replies[0]?.from, `::1:${six.boundPort}`);
});

t.test('a wildcard listener answers from the address that was asked', { skip: SKIP }, async (t) => {
  const addresses = ['127.0.0.1', '127.0.0.7', '127.1.2.3'];
  const hostAddresses = () => addresses.map((address) => ({ address, loopback: true }));
  const before = await settledDescriptors();
  const options = { hostAddresses, listen: WILDCARD };
  const { backend, owner, port, client } = await udpScene(t, options);
  for (const address of [...addresses, ...addresses]) {
    t.equal(await client.ask(`to ${address}`, port, address), `to ${address}`);
    t.equal(client.replies.at(-1)?.from, `${address}:${port}`);
  }
  t.match(owner.counters, { active: 3, connections: 3 }, 'each address has a session of its own');
  t.equal(backend.peers, 3);
  // Backend, client, listener and three sessions; then a poller, or a socket for each address.
  t.equal(openDescriptors(), before + 6 + (ENGINE === 'linux' ? 1 : 3));
});

t.test('a second wildcard listener on a port is refused, despite shared sockets', async (t) => {
  const rig = new UdpRig(t);
  const owner = rig.service([]);
  const { boundPort: port } = await rig.listen(owner, WILDCARD);
  await t.rejects(rig.listen(owner, { address: '0.0.0.0', port }), { code: 'EADDRINUSE' });
  await t.rejects(rig.listen(owner, { address: '127.0.0.5', port }), { code: 'EADDRINUSE' });
});

t.test('close ends the sessions, frees the port at once, and may be called again', async (t) => {
  const ended = collect(t, udpSessionEnded);
  const { rig, owner, listener, port, client } = await udpScene(t);
  await client.ask('x', port);

  const drained = rig.acceptor.gate.empty();
  await Promise.all([listener.close(), listener.close()]);
  await drained;
  t.equal(owner.counters.active, 0);
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
  const { rig, owner, listener, port, client } = await udpScene(t, {
    hostAddresses: () => addresses.slice(0, 2).map((address) => ({ address, loopback: true })),
    endpoints: [a.spec],
    listen: WILDCARD,
  });
  for (const address of addresses) t.equal(await client.ask('x', port, address), 'A');
  const latter = rig.service([b.spec]);
  listener.assign(latter, INTERNAL);
  const gone = { servicePort: owner.name, reason: 'service-gone' };
  t.match(ended, [gone, gone, gone]);
  for (const address of addresses) t.equal(await client.ask('x', port, address), 'B');
  t.equal(owner.counters.active, 0);

  listener.assign(latter, INTERNAL);
  t.equal(latter.counters.active, 3, 'nothing ends when nothing changes');
  listener.assign(latter, { ...INTERNAL, traffic: 'external' });
  t.equal(latter.counters.active, 0, 'other traffic may have other endpoints');
  await client.ask('x', port);
  await listener.close();
  t.equal(latter.counters.active, 0);
});

t.test('clients outside the source ranges are dropped, counted, and reported once', async (t) => {
  const refused = collect(t, rejected);
  const listen = { sourceRanges: ['127.0.0.2/32', '10.0.0.0/8'] };
  const { backend, owner, listener, port } = await udpScene(t, { listen });
  const [inside, outside] = [await UdpClient.open(t, '127.0.0.2'), await UdpClient.open(t)];

  outside.send('1', port);
  outside.send('2', port);
  t.equal(await inside.ask('let me in', port), 'let me in');
  await until(() => owner.counters.datagramsDropped === 2);
  t.match(owner.counters, { rejectedSource: 1, connections: 1 });
  t.match(refused, [{ reason: 'source', remoteAddress: `127.0.0.1:${outside.port}` }]);
  t.equal(backend.received.length, 1);

  listener.assign(owner, { ...INTERNAL, sourceRanges: ['127.0.0.1/32'] });
  t.equal(owner.counters.active, 0, 'who is shut out now has no session any more');
  t.equal(await outside.ask('and now?', port), 'and now?');

  listener.assign(owner, { ...INTERNAL, sourceRanges: [] });
  t.equal(owner.counters.active, 1, 'who is still let in keeps the session');
  t.equal(await inside.ask('all', port), 'all');
});
