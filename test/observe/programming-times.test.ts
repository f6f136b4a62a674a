import { Registry } from 'prom-client';
import t, { type Test } from 'tap';
import { kubeTriggered } from '../../src/kube/events.ts';
import { eventMetrics } from '../../src/observe/event-metrics.ts';
import { register } from '../../src/observe/metric-table.ts';
import { proxierSynced } from '../../src/proxier/events.ts';
import { sourceSynced } from '../../src/store/events.ts';
import { Subscriptions } from '../../src/util/channel.ts';
import { parseMetrics, type MetricsPage } from '../support/metrics-page.ts';

const T0 = Date.UTC(2026, 0, 1);
const NAME = 'kubeproxy_network_programming_duration_seconds';

function programmingSetup(t: Test) {
  const registry = new Registry();
  const subscriptions = new Subscriptions();
  t.teardown(() => subscriptions.end());
  const clock = { now: T0 };
  const now = (): number => clock.now;
  register(registry, subscriptions, eventMetrics({ now, monotonic: now }));
  const page = async (): Promise<MetricsPage> => parseMetrics(`${await registry.metrics()}\n`);
  const measured = async (): Promise<{ count: number | undefined; sum: number | undefined }> => {
    const all = await page();
    return { count: all.value(`${NAME}_count`), sum: all.value(`${NAME}_sum`) };
  };
  return { clock, page, measured };
}

function arrives(changed = 1): void {
  sourceSynced.publish({ source: 's', services: 9, changed });
}

function inPlace(parts: Partial<Parameters<typeof proxierSynced.publish>[0]> = {}): void {
  const none = { added: 0, removed: 0, changed: 0, endpointsChanged: 0 };
  const some = { durationMs: 1, services: 9, servicePorts: 9, endpoints: 9 };
  proxierSynced.publish({ ...none, ...some, ...parts });
}

t.test('a change is measured from when it was made until it is in place', async (t) => {
  const { clock, measured, page } = programmingSetup(t);
  kubeTriggered.publish({ times: [T0 - 3000, T0 - 1000] });
  arrives();
  clock.now += 500;
  inPlace();
  t.same(await measured(), { count: 2, sum: 3.5 + 1.5 });
  const all = await page();
  t.equal(all.value(`${NAME}_bucket`, { le: '1' }), 0);
  t.equal(all.value(`${NAME}_bucket`, { le: '2' }), 1);
  t.equal(all.value(`${NAME}_bucket`, { le: '300' }), 2);
  inPlace();
  t.equal((await measured()).count, 2, 'each once');
});

t.test('a change that arrives while another is applied is measured separately', async (t) => {
  const { clock, measured } = programmingSetup(t);
  arrives();
  kubeTriggered.publish({ times: [T0] });
  clock.now += 5000;
  inPlace();
  t.equal((await measured()).count, 0);
  arrives();
  clock.now += 1000;
  inPlace();
  t.same(await measured(), { count: 1, sum: 6 });
});

t.test('a change for other nodes does not count for a later one', async (t) => {
  const { clock, measured } = programmingSetup(t);
  kubeTriggered.publish({ times: [T0] });
  clock.now += 60_000;
  kubeTriggered.publish({ times: [clock.now - 250] });
  arrives();
  inPlace();
  t.same(await measured(), { count: 1, sum: 0.25 });
});

t.test('clocks that differ give no negative times', async (t) => {
  const { measured } = programmingSetup(t);
  kubeTriggered.publish({ times: [T0 + 5000] });
  arrives();
  inPlace();
  t.same(await measured(), { count: 1, sum: 0 });
});

t.test('changes by kind, and pending ones', async (t) => {
  const { page } = programmingSetup(t);
  arrives(7);
  const before = await page();
  const prefix = 'kubeproxy_sync_proxy_rules_';
  t.equal(before.value(`${prefix}service_changes_pending`), 7);
  t.equal(before.value(`${prefix}last_queued_timestamp_seconds`), T0 / 1000);
  inPlace({ added: 1, changed: 2, removed: 3, endpointsChanged: 4 });
  inPlace({ endpointsChanged: 1 });
  const after = await page();
  t.equal(after.value(`${prefix}service_changes_pending`), 0);
  t.equal(after.value(`${prefix}service_changes_total`), 6);
  t.equal(after.value(`${prefix}endpoint_changes_total`), 5);
});
