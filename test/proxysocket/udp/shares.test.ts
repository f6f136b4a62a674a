import t from 'tap';
import { limitChanged, type LimitChanged } from '../../../src/proxysocket/events.ts';
import { ProcessDescriptors } from '../../../src/proxysocket/core/descriptors.ts';
import { UdpBackend, UdpClient, UdpRig } from '../../support/udp-rig.ts';
import { until } from '../../support/until.ts';

t.test('any number of UDP clients leaves half of the descriptors to TCP', async (t) => {
  const limits: LimitChanged[] = [];
  const onLimit = (event: LimitChanged): void => void limits.push(event);
  limitChanged.subscribe(onLimit);
  t.teardown(() => limitChanged.unsubscribe(onLimit));
  const rig = new UdpRig(t, { descriptors: 20 });
  const backend = await UdpBackend.start(t);
  const owner = rig.service([backend.spec]);
  const { boundPort } = await rig.listen(owner);
  const regular = await UdpClient.open(t);

  for (let index = 1; index <= 25; index += 1) {
    const passing = await UdpClient.open(t);
    passing.send('x', boundPort);
    await until(() => owner.counters.connections >= index);
    t.equal(await regular.ask('still here', boundPort), 'still here');
  }
  t.match(owner.counters, { active: 10, connections: 26, sessionsEvicted: 16, rejectedLimit: 0 });
  t.match(limits[0], { limit: 'max-udp-sessions', value: 10, reached: true });
  t.ok(rig.descriptors.take(10), 'as TCP connections do');
});

t.test('any number of listeners leaves a quarter to clients', async (t) => {
  const descriptors = new ProcessDescriptors({ limit: 1024, reserve: 256 });
  let listeners = 0;
  while (descriptors.hold()) listeners += 1;
  t.equal(listeners, 576);
  t.equal(descriptors.capacity, 192);
  descriptors.drop();
  t.ok(descriptors.hold(), 'one for one');
  t.notOk(descriptors.hold());
  t.notOk(new ProcessDescriptors({ limit: 200, reserve: 256 }).hold(), 'nobody could be served');
});
