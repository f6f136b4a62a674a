import {
  countedIn,
  CONNECT_ERROR_CAUSES,
  GAUGE_COUNTERS,
  newCounters,
  PLAIN_COUNTERS,
} from '../../src/proxysocket/counters.ts';
import { activityIn, sharedCounters } from '../../src/proxysocket/pool/counter-memory.ts';
import { echoServer, request, connectionEnd, endpointAt } from '../support/tcp-peers.ts';
import { TcpRig, udpSpec } from '../support/tcp-rig.ts';
import { until } from '../support/until.ts';
import { limitChanged } from '../../src/proxysocket/events.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { collect } from '../support/sockets.ts';
import { UdpClient } from '../support/udp-rig.ts';
import t from 'tap';

t.test('every counter counts, but for those that say how many there are now', (t) => {
  const names: string[] = [];
  for (const name of PLAIN_COUNTERS) {
    let row: Float64Array = new Float64Array(0);
    const create = sharedCounters((_, memory) => (row = new Float64Array(memory)));
    const [plain, shared] = [newCounters(), create(0)];
    plain[name] = 3;
    shared[name] = 3;
    const activity = activityIn([{ thread: create, row }]);
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

t.test('limits of session affinity are reported as one event, and so is room', async (t) => {
  const clock = new FakeClock();
  const limits = { maxAffinityClients: 2, maxAffinityClientsTotal: 3 };
  const rig = new TcpRig(t, { clock, limits });
  const changes = collect(t, limitChanged);
  const { endpoint } = await echoServer(t);
  const affinity = { kind: 'clientIP', timeoutSeconds: 10 } as const;
  const [first, second] = [
    await rig.serve([endpoint], { affinity }),
    await rig.serve([endpoint], { name: 'test/second:http', affinity }),
  ];
  const ask = (port: number, from: string) => request(t, port, '', { localAddress: from });
  for (const from of ['127.0.0.1', '127.0.0.2']) await ask(first, from);
  t.same(changes, []);
  for (const from of ['127.0.0.3', '127.0.0.4']) await ask(first, from);
  const own = { limit: 'max-affinity-clients', value: 2 };
  t.same(changes.splice(0), [{ ...own, reached: true }], 'reported once');
  clock.advance(10_000);
  await ask(first, '127.0.0.4');
  t.same(changes.splice(0), [{ ...own, reached: false }]);
  for (const from of ['127.0.0.1', '127.0.0.2']) await ask(second, from);
  t.same(changes, []);
  await ask(first, '127.0.0.3');
  const total = { limit: 'max-affinity-clients-total', value: 3 };
  t.same(changes.splice(0), [{ ...total, reached: true }], 'service ports share one');
  await rig.remove('test/second:http');
  t.same(changes.at(-1), { ...total, reached: false }, 'a removed one gives its clients back');
});

t.test('clients learn of a drain for their traffic only', async (t) => {
  const rig = new TcpRig(t);
  const closed = { ...endpointAt(9), internal: false, external: false };
  const drained = { ...closed, drained: ['internal'] } as const;
  const listen = [{}, { traffic: 'external' }] as const;
  const spec = udpSpec([drained], { listen });
  await rig.engine.apply([{ kind: 'set', spec }]);
  await rig.serve([drained], { listen });
  t.equal(await connectionEnd(t, rig.port()), 'ECONNRESET');
  t.match(rig.counters, { rejectedDrained: 1, rejectedNoEndpoint: 0 });
  t.equal(await connectionEnd(t, rig.port(undefined, 1)), 'ECONNRESET');
  await rig.endpoints([]);
  t.equal(await connectionEnd(t, rig.port()), 'ECONNRESET');
  t.match(rig.counters, { rejectedDrained: 1, rejectedNoEndpoint: 2 }, 'the drain is over');
  const counters = () => rig.snapshot(spec.name).counters;
  const client = await UdpClient.open(t);
  for (const index of [0, 1]) client.send('anybody?', rig.port(spec.name, index));
  await until(() => counters().datagramsDropped === 2);
  t.match(counters(), { rejectedDrained: 1, rejectedNoEndpoint: 1 });
});
