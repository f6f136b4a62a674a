/** Metrics that depend on time; events.test.ts has those that count events. */
import t, { type Test } from 'tap';
import { kubeReceived, kubeTriggered } from '../../src/kube/events.ts';
import { proxierSynced } from '../../src/proxier/events.ts';
import * as store from '../../src/store/events.ts';
import { eventRegistry, parseMetrics } from '../support/metrics-page.ts';

const T0 = Date.UTC(2026, 0, 1);

function setup(t: Test) {
  const clock = { now: T0 };
  const registry = eventRegistry(t, () => clock.now);
  const page = async () => parseMetrics(`${await registry.metrics()}\n`);
  return { clock, page };
}

function arrives(): void {
  store.sourceSynced.publish({ source: 's', services: 9, changed: 1 });
}

function inPlace(): void {
  const none = { added: 0, removed: 0, changed: 0, endpointsChanged: 0 };
  proxierSynced.publish({ ...none, durationMs: 40, services: 9, servicePorts: 9, endpoints: 9 });
}

t.test('a change is measured from when it was made until it is in place', async (t) => {
  const name = 'kubeproxy_network_programming_duration_seconds';
  const { clock, page } = setup(t);
  let [count, sum] = [0, 0];
  const measured = async (what: string, ...seconds: number[]): Promise<void> => {
    count += seconds.length;
    sum += seconds.reduce((all, each) => all + each, 0);
    const all = await page();
    t.same([all.value(`${name}_count`), all.value(`${name}_sum`)], [count, sum], what);
  };
  kubeTriggered.publish({ times: [T0 - 3000, T0 - 1000] });
  arrives();
  clock.now += 500;
  inPlace();
  await measured('two', 3.5, 1.5);
  const all = await page();
  const bucketsOf = (name: string, ...bounds: string[]) =>
    bounds.map((le) => all.value(`${name}_bucket`, { le }));
  t.same(bucketsOf(name, '1', '2', '300'), [0, 1, 2]);
  const sync = 'kubeproxy_sync_proxy_rules_duration_seconds';
  t.same(bucketsOf(sync, '0.001', '0.032', '0.064', '16.384'), [0, 0, 1, 1]);
  t.equal(all.value('kpng_userspace_api_watchers', { api: 'local' }), 0, 'from the start');
  inPlace();
  await measured('each once');
  arrives();
  kubeTriggered.publish({ times: [clock.now] });
  clock.now += 5000;
  inPlace();
  await measured('it came while another was applied');
  arrives();
  clock.now += 1000;
  inPlace();
  await measured('and is measured with the next', 6);
  kubeTriggered.publish({ times: [clock.now] });
  clock.now += 60_000;
  kubeTriggered.publish({ times: [clock.now - 250] });
  arrives();
  inPlace();
  await measured('not what was for other nodes', 0.25);
  kubeTriggered.publish({ times: [clock.now + 5000] });
  arrives();
  inPlace();
  await measured('clocks that differ give no negative times', 0);
});

t.test('the age of the last event grows until something comes', async (t) => {
  const { clock, page } = setup(t);
  const event = { resource: 'nodes', added: 0, modified: 0, deleted: 0, bookmarks: 1 } as const;
  const name = 'kpng_userspace_source_last_event_age_seconds';
  for (const waited of [90, 0]) {
    kubeReceived.publish(event);
    clock.now += waited * 1000;
    t.equal((await page()).value(name, { resource: 'nodes' }), waited);
  }
});
