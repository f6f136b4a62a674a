/** Which endpoints UDP clients had in the process before this one. */
import { setEnvironmentData } from 'node:worker_threads';
import t from 'tap';
import { PreviousFlows, keepPreviousFlows } from '../../../src/proxysocket/udp/previous-flows.ts';
import { FakeClock } from '../../support/fake-clock.ts';

const IDLE_MS = 30_000;
const CLIENT = { address: '10.0.0.9', port: 5000 };
const CLIENT6 = { address: 'fd00::9', port: 5000 };

function kept(): { readonly clock: FakeClock; readonly flows: PreviousFlows } {
  keepPreviousFlows([
    { servicePort: 'd/dns:dns', client: '10.0.0.9:5000', endpoint: '10.1.0.1:53' },
    { servicePort: 'd/dns:dns', client: '[fd00::9]:5000', endpoint: '10.1.0.2:53' },
  ]);
  const clock = new FakeClock();
  return { clock, flows: new PreviousFlows(clock, IDLE_MS) };
}

t.afterEach(() => setEnvironmentData('kpng-userspace previous UDP flows', undefined));

t.test('each client is told of once, and for its service port only', async (t) => {
  const { flows } = kept();
  t.equal(flows.take('d/other:dns', CLIENT), undefined);
  t.equal(flows.take('d/dns:dns', { ...CLIENT, port: 5001 }), undefined);
  t.equal(flows.take('d/dns:dns', CLIENT), '10.1.0.1:53');
  t.equal(flows.take('d/dns:dns', CLIENT), undefined, 'its next session begins anew');
  t.equal(flows.take('d/dns:dns', CLIENT6), '10.1.0.2:53');
});

t.test('they count for as long as a session would have been idle', async (t) => {
  const { clock, flows } = kept();
  clock.advance(10 * IDLE_MS);
  t.equal(flows.take('d/dns:dns', CLIENT6), '10.1.0.2:53', 'nobody has asked before');
  clock.advance(IDLE_MS + 1);
  t.equal(flows.take('d/dns:dns', CLIENT), undefined);
});

t.test('without an old process there are none', async (t) => {
  keepPreviousFlows([]);
  t.equal(new PreviousFlows(new FakeClock(), IDLE_MS).take('d/dns:dns', CLIENT), undefined);
});
