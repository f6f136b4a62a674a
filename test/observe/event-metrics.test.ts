/** Metrics that events update. */
import { Registry } from 'prom-client';
import t, { type Test } from 'tap';
import { KpngError } from '../../src/errors.ts';
import { kubeReceived, kubeTriggered } from '../../src/kube/events.ts';
import { eventMetrics } from '../../src/observe/event-metrics.ts';
import { register } from '../../src/observe/metric-table.ts';
import * as portals from '../../src/portal/events.ts';
import { problemChanged, proxierSynced, proxierSyncFailed } from '../../src/proxier/events.ts';
import { dataPlaneFault } from '../../src/proxysocket/events.ts';
import * as store from '../../src/store/events.ts';
import { Subscriptions } from '../../src/util/channel.ts';
import { parseMetrics } from '../support/metrics-page.ts';

const T0 = Date.UTC(2026, 0, 1);

function setup(t: Test) {
  const registry = new Registry();
  const subscriptions = new Subscriptions();
  t.teardown(() => subscriptions.end());
  const clock = { now: T0 };
  const now = (): number => clock.now;
  register(registry, subscriptions, eventMetrics({ now, monotonic: now }));
  const page = async () => parseMetrics(`${await registry.metrics()}\n`);
  /** The values of metrics without labels, their common prefix left out. */
  const values = async (prefix: string, ...names: string[]) => {
    const all = await page();
    return Object.fromEntries(names.map((name) => [name, all.value(prefix + name)]));
  };
  return { clock, page, values };
}

function arrives(changed = 1): void {
  store.sourceSynced.publish({ source: 's', services: 9, changed });
}

function inPlace(parts: Partial<Parameters<typeof proxierSynced.publish>[0]> = {}): void {
  const none = { added: 0, removed: 0, changed: 0, endpointsChanged: 0 };
  const some = { durationMs: 1, services: 9, servicePorts: 9, endpoints: 9 };
  proxierSynced.publish({ ...none, ...some, ...parts });
}

t.test('the source', async (t) => {
  const { values } = setup(t);
  const source = 'test';
  const read = (...names: string[]) => values('kpng_userspace_', ...names);
  t.same(await read('source_connected'), { source_connected: 0 });
  store.sourceConnected.publish({ source });
  store.sourceSynced.publish({ source, services: 12, changed: 12 });
  store.opInvalid.publish({ source, error: new KpngError('KPNG_OP_INVALID', 'x') });
  const expected = {
    source_connected: 1,
    source_connects_total: 1,
    source_syncs_total: 1,
    source_services: 12,
    source_invalid_ops_total: 1,
    source_last_sync_timestamp_seconds: T0 / 1000,
    source_failures_total: 0,
    sink_failures_total: 0,
  };
  t.same(await read(...Object.keys(expected)), expected);
  const lost = new KpngError('KPNG_SOURCE_LOST', 'x');
  store.sourceDisconnected.publish({ source, error: lost, retryInMs: 1 });
  const failed = new KpngError('KPNG_SINK_FAILED', 'x');
  store.sinkFailed.publish({ error: failed, waiting: 1, retryInMs: 1 });
  t.same(await read('source_connected', 'source_failures_total', 'sink_failures_total'), {
    source_connected: 0,
    source_failures_total: 1,
    sink_failures_total: 1,
  });
});

t.test('the sync, under kube-proxy’s names, problems and faults', async (t) => {
  const { page, values } = setup(t);
  arrives(7);
  const prefix = 'kubeproxy_sync_proxy_rules_';
  t.same(await values(prefix, 'service_changes_pending', 'last_queued_timestamp_seconds'), {
    service_changes_pending: 7,
    last_queued_timestamp_seconds: T0 / 1000,
  });
  inPlace({ added: 1, changed: 2, removed: 3, endpointsChanged: 4, durationMs: 40 });
  inPlace({ endpointsChanged: 1, servicePorts: 3 });
  proxierSyncFailed.publish({ durationMs: 1, error: new KpngError('KPNG_SINK_FAILED', 'x') });
  const problem = { message: 'x', servicePort: undefined, count: 1 };
  for (const kind of ['appeared', 'gone'] as const) {
    problemChanged.publish({ kind, problem: { ...problem, code: 'KPNG_PORTAL_CONFLICT' } });
  }
  for (const what of ['worker-lost', 'worker-lost', 'fallback'] as const) {
    dataPlaneFault.publish({ what, error: new Error('a crash') });
  }
  const expected = {
    service_changes_pending: 0,
    service_changes_total: 6,
    endpoint_changes_total: 5,
    duration_seconds_count: 2,
    last_timestamp_seconds: T0 / 1000,
  };
  t.same(await values(prefix, ...Object.keys(expected)), expected);
  const all = await page();
  t.equal(all.types.get(`${prefix}duration_seconds`), 'histogram');
  t.equal(all.value(`${prefix}duration_seconds_bucket`, { le: '0.032' }), 1);
  t.equal(all.value(`${prefix}duration_seconds_bucket`, { le: '0.064' }), 2);
  t.equal(all.value('kpng_userspace_sync_failures_total'), 1);
  t.equal(all.value('kpng_userspace_service_ports'), 3);
  t.equal(all.value('kpng_userspace_problems_total', { code: 'KPNG_PORTAL_CONFLICT' }), 1);
  t.equal(all.value('kpng_userspace_engine_faults_total', { what: 'worker-lost' }), 2);
  t.equal(all.value('kpng_userspace_engine_faults_total', { what: 'fallback' }), 1);
});

t.test('a change is measured from when it was made until it is in place', async (t) => {
  const name = 'kubeproxy_network_programming_duration_seconds';
  const { clock, values, page } = setup(t);
  let [count, sum] = [0, 0];
  const measured = async (what: string, ...seconds: number[]): Promise<void> => {
    count += seconds.length;
    sum += seconds.reduce((all, each) => all + each, 0);
    t.same(await values(name, '_count', '_sum'), { _count: count, _sum: sum }, what);
  };
  kubeTriggered.publish({ times: [T0 - 3000, T0 - 1000] });
  arrives();
  clock.now += 500;
  inPlace();
  await measured('two', 3.5, 1.5);
  const all = await page();
  t.same(
    ['1', '2', '300'].map((le) => all.value(`${name}_bucket`, { le })),
    [0, 1, 2],
  );
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

t.test('portals: writes by reason, failures by code', async (t) => {
  const { page } = setup(t);
  const portal = 'nftables';
  const value = async (name: string, labels = {}) =>
    (await page()).value(`kpng_userspace_portal_${name}`, { portal, ...labels });
  const written = (reason: 'start' | 'change' | 'repair'): void =>
    portals.portalWritten.publish({ portal, reason, added: 1, removed: 2, durationMs: 4 });
  const failed = (servicePort?: string): void => {
    const where = servicePort === undefined ? {} : { servicePort };
    const error = new KpngError('KPNG_PORTAL_PERMISSION', 'why', where);
    portals.portalFailed.publish({ portal, error });
  };
  t.equal(await value('up'), undefined, 'other portals have no rules');
  for (const reason of ['start', 'change', 'change'] as const) written(reason);
  t.equal(await value('up'), 1);
  t.equal(await value('writes_total', { reason: 'start' }), 1);
  t.equal(await value('writes_total', { reason: 'change' }), 2);
  t.equal(await value('last_write_duration_seconds'), 0.004);
  failed('a/b:c');
  t.equal(await value('up'), 1, 'all others are served');
  failed();
  t.equal(await value('up'), 0);
  t.equal(await value('failures_total', { code: 'KPNG_PORTAL_PERMISSION' }), 2);
  written('repair');
  portals.portalLost.publish({ portal, message: 'gone' });
  t.equal(await value('up'), 0);
  t.equal(await value('lost_total'), 1);
  written('repair');
  t.equal(await value('up'), 1);
  const error = new KpngError('KPNG_PORTAL_TOOL_MISSING', 'no conntrack');
  portals.flowsNotCleared.publish({ portal, error });
  t.equal(await value('flow_failures_total', { code: 'KPNG_PORTAL_TOOL_MISSING' }), 1);
  portals.portalShared.publish({ portal, error });
  t.equal(await value('shared'), 1);
  portals.portalShared.publish({ portal, error: undefined });
  t.equal(await value('shared'), 0);
});

t.test('the age of the last event grows until something comes', async (t) => {
  const { clock, page } = setup(t);
  const counts = { added: 0, modified: 0, deleted: 0, bookmarks: 1 };
  const labels = { resource: 'nodes' };
  const age = async () =>
    (await page()).value('kpng_userspace_source_last_event_age_seconds', labels);
  kubeReceived.publish({ resource: 'nodes', ...counts });
  clock.now += 90_000;
  t.equal(await age(), 90);
  kubeReceived.publish({ resource: 'nodes', ...counts });
  t.equal(await age(), 0);
});
