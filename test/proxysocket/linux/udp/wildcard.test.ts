import { LinuxUdpTransport } from '../../../../src/proxysocket/linux/udp/transport.ts';
import { UdpAcceptor } from '../../../../src/proxysocket/udp/acceptor.ts';
import type { Listener } from '../../../../src/proxysocket/core/service-port.ts';
import type { Test } from 'tap';
import { inlineLoop } from '../../../support/engine-under-test.ts';
import { linuxTest, newSys } from '../../../support/linux-sys.ts';
import { openDescriptors } from '../../../support/sockets.ts';
import { UdpBackend, UdpClient, UdpRig, type TestService } from '../../../support/udp-rig.ts';

/** A wildcard listener of the `linux` engine, whatever engine the other tests run against. */
async function listen(t: Test, owner: TestService, address: string): Promise<Listener> {
  const { clock, limits, descriptors } = new UdpRig(t);
  const loop = inlineLoop(t, newSys());
  const context = { clock, limits, descriptors };
  const acceptor = new UdpAcceptor(new LinuxUdpTransport(loop, context), context);
  t.teardown(() => acceptor.destroy());
  return acceptor.listen({ address, port: 0, traffic: 'internal' }, owner);
}

linuxTest('one socket answers from every address that is asked, listed or not', async (t) => {
  const before = openDescriptors();
  const backend = await UdpBackend.start(t);
  const owner = new UdpRig(t).service([backend.spec]);
  const listener = await listen(t, owner, '0.0.0.0');
  const client = await UdpClient.open(t);
  const addresses = ['127.0.0.1', '127.0.0.2', '127.200.3.4'];
  for (const address of [...addresses, ...addresses]) {
    t.equal(await client.ask(`to ${address}`, listener.boundPort, address), `to ${address}`);
    t.equal(client.replies.at(-1)?.from, `${address}:${listener.boundPort}`);
  }
  t.match(owner.counters, { active: 3, connections: 3 }, 'each has a session of its own');
  t.equal(backend.peers, 3);
  // Backend, client, poller, listener and three sessions.
  t.equal(openDescriptors(), before + 7, 'and no socket for an address');
});

linuxTest('so it does with IPv6', async (t) => {
  const backend = await UdpBackend.start(t, undefined, { address: '::1' });
  const owner = new UdpRig(t).service([backend.spec]);
  const listener = await listen(t, owner, '::');
  const client = await UdpClient.open(t, '::1');
  t.equal(await client.ask('six', listener.boundPort, '::1'), 'six');
  t.equal(client.replies[0]?.from, `::1:${listener.boundPort}`);
});

linuxTest('the sessions of all addresses move with the listener', async (t) => {
  const [a, b] = [await UdpBackend.named(t, 'A'), await UdpBackend.named(t, 'B')];
  const rig = new UdpRig(t);
  const [former, latter] = [rig.service([a.spec]), rig.service([b.spec])];
  const listener = await listen(t, former, '0.0.0.0');
  const client = await UdpClient.open(t);
  const addresses = ['127.0.0.1', '127.0.0.7'];
  for (const address of addresses) {
    t.equal(await client.ask('x', listener.boundPort, address), 'A');
  }
  listener.assign(latter, 'internal');
  t.equal(former.counters.active, 0);
  for (const address of addresses) {
    t.equal(await client.ask('x', listener.boundPort, address), 'B');
  }
  await listener.close();
  t.equal(latter.counters.active, 0);
});
