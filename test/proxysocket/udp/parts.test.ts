/** What sessions are refused for, and what they remember. */
import { setEnvironmentData } from 'node:worker_threads';
import t from 'tap';
import {
  previousFlows,
  keepPreviousFlows,
  MAX_REFUSED_CLIENTS,
  refusals,
} from '../../../src/proxysocket/udp/known-clients.ts';
import { ClientTable } from '../../../src/proxysocket/udp/transport.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { UdpRig } from '../../support/udp-rig.ts';

const WINDOW = 30_000;

t.test('clients are one refusal while they ask; a flood does not grow the memory', async (t) => {
  const clock = new FakeClock();
  const owner = new UdpRig(t).service([]);
  const report = refusals(clock, WINDOW);
  const refuse = (port: number): number => {
    report(owner, { address: '127.0.0.1', port }, 'no-endpoint');
    return owner.counters.rejectedNoEndpoint;
  };
  for (let asked = 0; asked < 20; asked += 1) {
    t.equal(refuse(1), 1);
    clock.advance(WINDOW / 3);
  }
  const flood = 3 * MAX_REFUSED_CLIENTS;
  for (let port = 1; port <= flood; port += 1) refuse(port);
  t.equal(refuse(flood), flood, 'the latest are remembered');
  t.equal(refuse(1), flood + 1, 'the first are forgotten');
});

t.test('a client table has one value for each address and port', (t) => {
  const table = new ClientTable<{ client: { address: string; port: number } }>();
  const [one, other, last] = [1, 2, 1].map((port) => ({ client: { address: '::1', port } }));
  if (!one || !other || !last) throw new Error('three were made');
  table.add(one.client, one);
  table.add(other.client, other);
  table.delete(last.client, last);
  t.equal(table.get('::1', 1), one, 'another value of the same client');
  table.add(last.client, last);
  t.same([...table.values()], [last, other]);
  table.delete(last.client, last);
  t.equal(table.get('::1', 1), undefined);
  table.delete(other.client, other);
  t.ok(table.isEmpty);
  t.end();
});

t.test('which endpoints clients had in the process before this one', async (t) => {
  t.teardown(() => setEnvironmentData('kpng-userspace previous UDP flows', undefined));
  const servicePort = 'd/dns:dns';
  keepPreviousFlows([
    { servicePort, client: '10.0.0.9:5000', endpoint: '10.1.0.1:53' },
    { servicePort, client: '[fd00::9]:5000', endpoint: '10.1.0.2:53' },
  ]);
  const clock = new FakeClock();
  const take = previousFlows(clock, WINDOW);
  const client = { address: '10.0.0.9', port: 5000 };
  clock.advance(10 * WINDOW);
  t.equal(take('d/other:dns', client), undefined);
  t.equal(take(servicePort, { ...client, port: 5001 }), undefined);
  t.equal(take(servicePort, client), '10.1.0.1:53', 'the time begins with the first look');
  t.equal(take(servicePort, client), undefined, 'its next session begins again');
  clock.advance(WINDOW + 1);
  const six = { address: 'fd00::9', port: 5000 };
  t.equal(take(servicePort, six), undefined, 'no session would have been idle for longer');
  t.equal(previousFlows(clock, WINDOW)(servicePort, six), '10.1.0.2:53');
});
