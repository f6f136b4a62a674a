import t from 'tap';
import type { Listener } from '../../../src/proxysocket/core/service-port.ts';
import type { EndpointSpec } from '../../../src/proxysocket/spec.ts';
import { MAX_HOPS } from '../../../src/proxysocket/udp/sessions.ts';
import { UdpBackend, UdpClient, UdpRig, type TestService } from '../../support/udp-rig.ts';
import { until } from '../../support/until.ts';

function endpointAt({ address, boundPort }: Listener): EndpointSpec {
  return { address, port: boundPort, internal: true, external: true };
}

t.test('a service whose endpoint is itself keeps a few sessions busy, no more', async (t) => {
  const rig = new UdpRig(t);
  const owner = rig.service([]);
  const listener = await rig.listen(owner);
  rig.update(owner, [endpointAt(listener)]);
  const client = await UdpClient.open(t);

  for (let sent = 1; sent <= 3; sent += 1) {
    client.send('x', listener.boundPort);
    await until(() => owner.counters.datagramsDropped === sent);
  }
  t.match(owner.counters, { active: MAX_HOPS, connections: MAX_HOPS, rejectedLimit: 1 });
  t.equal(owner.counters.datagramsIn, 3 * MAX_HOPS);
});

t.test('so do services that are endpoints of each other, on any address', async (t) => {
  const rig = new UdpRig(t);
  const [ping, pong] = [rig.service([]), rig.service([])];
  const toPing = await rig.listen(ping, { address: '0.0.0.0' });
  const toPong = await rig.listen(pong);
  rig.update(ping, [endpointAt(toPong)]);
  rig.update(pong, [{ ...endpointAt(toPing), address: '127.0.0.1' }]);
  const client = await UdpClient.open(t);

  client.send('x', toPing.boundPort);
  await until(() => ping.counters.datagramsDropped + pong.counters.datagramsDropped === 1);
  t.equal(ping.counters.active + pong.counters.active, MAX_HOPS);
});

t.test('services may be endpoints of services, and answers find the way back', async (t) => {
  const rig = new UdpRig(t);
  const backend = await UdpBackend.named(t, 'far away');
  let endpoint = backend.spec;
  let owner: TestService | undefined;
  let listener: Listener | undefined;
  for (let link = 0; link < 4; link += 1) {
    owner = rig.service([endpoint]);
    listener = await rig.listen(owner);
    endpoint = endpointAt(listener);
  }
  const client = await UdpClient.open(t);
  t.equal(await client.ask('x', listener?.boundPort ?? 0), 'far away');
  t.equal(await client.ask('x', listener?.boundPort ?? 0), 'far away');
  t.match(owner?.counters, { active: 1, datagramsDropped: 0 });
});
