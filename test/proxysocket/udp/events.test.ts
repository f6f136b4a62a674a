import t from 'tap';
import {
  endpointPicked,
  udpSessionEnded,
  udpSessionStarted,
} from '../../../src/proxysocket/events.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { UdpBackend, UdpClient, UdpRig } from '../../support/udp-rig.ts';
import { collect } from '../../support/sockets.ts';
import { until } from '../../support/until.ts';

t.test('a session tells of its endpoint, its beginning and its end', async (t) => {
  const clock = new FakeClock();
  const rig = new UdpRig(t, { clock });
  const picked = collect(t, endpointPicked);
  const started = collect(t, udpSessionStarted);
  const ended = collect(t, udpSessionEnded);
  const backend = await UdpBackend.start(t);
  const owner = rig.service([backend.spec], {
    name: 'kube-system/dns:dns',
    affinity: { kind: 'clientIP', timeoutSeconds: 600 },
  });
  const listener = await rig.listen(owner);
  const [client, second] = [await UdpClient.open(t), await UdpClient.open(t)];
  await client.ask('one', listener.boundPort);
  await client.ask('two', listener.boundPort);
  client.send('', listener.boundPort);
  await until(() => client.replies.length === 3);

  const endpoint = `127.0.0.1:${backend.spec.port}`;
  const remoteAddress = `127.0.0.1:${client.port}`;
  const servicePort = 'kube-system/dns:dns';
  t.same(picked, [
    {
      servicePort,
      sourceAddress: remoteAddress,
      endpoint,
      sticky: false,
      endpoints: 1,
      attempt: 1,
    },
  ]);
  t.same(started, [{ servicePort, remoteAddress, endpoint }]);
  t.same(ended, []);

  clock.advance(30_000);
  t.same(ended, [
    { servicePort, remoteAddress, endpoint, datagramsIn: 3, datagramsOut: 3, reason: 'idle' },
  ]);
  await second.ask('x', listener.boundPort);
  t.match(picked[1], { sticky: true, attempt: 1 });

  await rig.acceptor.destroy();
  t.match(ended[1], { reason: 'destroyed', datagramsIn: 1 });
});

t.test('an endpoint that could not be connected shows in the attempt of the next', async (t) => {
  const rig = new UdpRig(t);
  const picked = collect(t, endpointPicked);
  const started = collect(t, udpSessionStarted);
  const backend = await UdpBackend.start(t);
  const owner = rig.service([
    { address: '255.255.255.255', port: 9, internal: true, external: true },
    backend.spec,
  ]);
  const listener = await rig.listen(owner);
  const client = await UdpClient.open(t);
  await client.ask('x', listener.boundPort);

  t.match(
    picked.map(({ endpoint, attempt }) => ({ endpoint, attempt })),
    [
      { endpoint: '255.255.255.255:9', attempt: 1 },
      { endpoint: `127.0.0.1:${backend.spec.port}`, attempt: 2 },
    ],
  );
  t.equal(started.length, 1, 'a session starts when it is connected');
});
