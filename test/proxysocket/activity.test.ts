import t from 'tap';
import {
  countedIn,
  CONNECT_ERROR_CAUSES,
  GAUGE_COUNTERS,
  newCounters,
  PLAIN_COUNTERS,
  type Activity,
} from '../../src/proxysocket/counters.ts';
import { CounterMemory, CounterRows } from '../../src/proxysocket/pool/counter-memory.ts';
import { tcpClient, tcpServer } from '../support/tcp-peers.ts';
import { TcpRig } from '../support/tcp-rig.ts';
import { until } from '../support/until.ts';

t.test('every counter counts, but for those that say how many there are now', (t) => {
  const names: string[] = [];
  for (const name of PLAIN_COUNTERS) {
    const memory = new CounterMemory(1);
    const slot = memory.allocate();
    const rows = new CounterRows(0, 1);
    rows.assign(memory.blocks, new Map([['d/web', slot]]));
    const [plain, shared] = [newCounters(), rows.create('d/web')];
    plain[name] = 3;
    shared[name] = 3;
    const activity = memory.activityOf(slot);
    t.equal(activity.counted, countedIn(plain), name);
    t.equal(activity.active, plain.active, name);
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
