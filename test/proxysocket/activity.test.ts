import t from 'tap';
import { countedIn, type Activity } from '../../src/proxysocket/core/activity.ts';
import {
  CONNECT_ERROR_CAUSES,
  GAUGE_COUNTERS,
  newCounters,
  PLAIN_COUNTERS,
} from '../../src/proxysocket/counters.ts';
import { CounterReader, CounterSlots } from '../../src/proxysocket/threads/counter-slots.ts';
import { tcpClient, tcpServer } from '../support/tcp-peers.ts';
import { TcpRig } from '../support/tcp-rig.ts';
import { until } from '../support/until.ts';

t.test('every counter counts, but for those that say how many there are now', (t) => {
  const names: string[] = [];
  for (const name of PLAIN_COUNTERS) {
    const reader = new CounterReader();
    const slots = new CounterSlots((memory) => reader.addBlock(memory));
    const [plain, shared] = [newCounters(), slots.create()];
    plain[name] = 3;
    shared[name] = 3;
    const place = slots.placeOf(shared);
    const told = place && reader.activityOf(place);
    t.equal(told?.counted, countedIn(plain), name);
    t.equal(told?.active, plain.active, name);
    if (countedIn(plain) !== 3) names.push(name);
  }
  t.strictSame(names, [...GAUGE_COUNTERS]);
  for (const cause of CONNECT_ERROR_CAUSES) {
    const counters = newCounters();
    counters.connectErrors[cause] = 1;
    t.equal(countedIn(counters), 1, cause);
  }
  t.end();
});

t.test('an engine tells that something has moved, and that nothing has', async (t) => {
  const rig = new TcpRig(t);
  const server = await tcpServer(t);
  const port = await rig.serve([server.endpoint]);
  const activity = (): Activity | undefined => rig.engine.activity?.();
  const before = activity();
  t.match(before, { counted: 0, active: 0 });
  t.strictSame(activity(), before);
  const client = await tcpClient(t, port);
  await until(() => activity()?.active === 1);
  const [connected, socket] = [activity(), await server.next()];
  client.write('hello');
  await until(() => (activity()?.counted ?? 0) === (connected?.counted ?? 0) + 5);
  socket.end();
  client.end();
  await until(() => activity()?.active === 0);
});
