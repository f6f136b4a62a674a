import t from 'tap';
import { KpngError } from '../../src/errors.ts';
import { Health } from '../../src/observe/health.ts';
import { HEALTH_STATES } from '../../src/observe/verdict.ts';
import { createMetrics } from '../../src/observe/metrics.ts';
import { problemChanged, proxierSynced, proxierSyncFailed } from '../../src/proxier/events.ts';
import { newCounters } from '../../src/proxysocket/counters.ts';
import type { ServicePortSnapshot } from '../../src/proxysocket/engine.ts';
import { dataPlaneFault, limitChanged } from '../../src/proxysocket/events.ts';
import { DEFAULT_LIMITS } from '../../src/proxysocket/limits.ts';
import * as store from '../../src/store/events.ts';
import { parseMetrics, scrapePage, type MetricsPage } from '../support/metrics-page.ts';

function setup(t: { teardown(end: () => void): void }, snapshot: ServicePortSnapshot[] = []) {
  const limits = { ...DEFAULT_LIMITS };
  const metrics = createMetrics({ version: '1.2.3' });
  t.teardown(() => metrics.close());
  metrics.observe({
    engine: 'node',
    portal: 'address',
    limits,
    snapshot: () => snapshot,
    problems: () => [
      { code: 'KPNG_LISTEN_PERMISSION', count: 2 },
      { code: 'KPNG_LISTEN_PERMISSION', count: 1 },
    ],
  });
  const scrape = async (): Promise<MetricsPage> => {
    return await scrapePage(metrics);
  };
  return { metrics, scrape, limits };
}

function servicePort(name: string, protocol: 'TCP' | 'UDP', active: number): ServicePortSnapshot {
  const counters = { ...newCounters(), active };
  return { name, protocol, listeners: [], endpoints: 1, counters };
}

t.test('faults inside an engine are counted by kind', async (t) => {
  const { scrape } = setup(t);
  for (const what of ['worker-lost', 'worker-lost', 'fallback'] as const) {
    dataPlaneFault.publish({ what, error: new Error('a crash') });
  }
  const page = await scrape();
  const count = (what: string) => page.value('kpng_userspace_engine_faults_total', { what });
  t.same([count('worker-lost'), count('fallback')], [2, 1]);
});

t.test('limits, their use, and how often they were reached', async (t) => {
  const { scrape, limits } = setup(t, [
    servicePort('a/b:c', 'TCP', 3),
    servicePort('a/c:c', 'TCP', 4),
    servicePort('a/d:c', 'UDP', 5),
  ]);
  limitChanged.publish({ limit: 'max-connections', value: 7, reached: true });
  limitChanged.publish({ limit: 'max-connections', value: 7, reached: false });
  limitChanged.publish({ limit: 'reserved-descriptors', value: 7, reached: true });
  const page = await scrape();
  t.equal(page.value('kpng_userspace_limit', { limit: 'max-connections' }), 100_000);
  t.equal(page.value('kpng_userspace_limit', { limit: 'udp-idle-timeout' }), 30, 'in seconds');
  t.equal(page.value('kpng_userspace_limit', { limit: 'connect-timeouts' }), 3.75, 'their sum');
  t.equal(page.value('kpng_userspace_limit_used', { limit: 'max-connections' }), 7);
  t.equal(page.value('kpng_userspace_limit_used', { limit: 'max-udp-sessions' }), 5);
  t.equal(page.value('kpng_userspace_limit_reached_total', { limit: 'max-connections' }), 1);
  t.equal(page.value('kpng_userspace_limit_reached_total', { limit: 'reserved-descriptors' }), 1);
  limits.maxConnections = 70;
  const changed = await scrape();
  t.equal(changed.value('kpng_userspace_limit', { limit: 'max-connections' }), 70);
});

t.test('the source', async (t) => {
  const { scrape } = setup(t);
  const source = 'test';
  t.equal((await scrape()).value('kpng_userspace_source_connected'), 0);
  store.sourceConnected.publish({ source });
  store.sourceSynced.publish({ source, services: 12, changed: 12 });
  store.opInvalid.publish({ source, error: new KpngError('KPNG_OP_INVALID', 'x') });
  let page = await scrape();
  t.equal(page.value('kpng_userspace_source_connected'), 1);
  t.equal(page.value('kpng_userspace_source_connects_total'), 1);
  t.equal(page.value('kpng_userspace_source_syncs_total'), 1);
  t.equal(page.value('kpng_userspace_source_services'), 12);
  t.equal(page.value('kpng_userspace_source_invalid_ops_total'), 1);
  const seconds = page.value('kpng_userspace_source_last_sync_timestamp_seconds') ?? 0;
  t.ok(Math.abs(seconds - Date.now() / 1000) < 60);
  store.sourceDisconnected.publish({
    source,
    error: new KpngError('KPNG_SOURCE_LOST', 'x'),
    retryInMs: 1,
  });
  store.sinkFailed.publish({
    error: new KpngError('KPNG_SINK_FAILED', 'x'),
    waiting: 1,
    retryInMs: 1,
  });
  page = await scrape();
  t.equal(page.value('kpng_userspace_source_connected'), 0);
  t.equal(page.value('kpng_userspace_source_failures_total'), 1);
  t.equal(page.value('kpng_userspace_sink_failures_total'), 1);
});

t.test('the sync, under kube-proxy’s names', async (t) => {
  const { scrape } = setup(t);
  const synced = { services: 1, endpoints: 2, added: 3, removed: 0, changed: 0 };
  proxierSynced.publish({ ...synced, servicePorts: 3, endpointsChanged: 0, durationMs: 40 });
  proxierSyncFailed.publish({ durationMs: 1, error: new KpngError('KPNG_SINK_FAILED', 'x') });
  const problem = {
    code: 'KPNG_PORTAL_CONFLICT',
    message: 'x',
    servicePort: undefined,
    count: 1,
  } as const;
  problemChanged.publish({ kind: 'appeared', problem });
  problemChanged.publish({ kind: 'gone', problem });
  const page = await scrape();
  const name = 'kubeproxy_sync_proxy_rules_duration_seconds';
  t.equal(page.types.get(name), 'histogram');
  t.equal(page.value(`${name}_count`), 1);
  t.equal(page.value(`${name}_bucket`, { le: '0.032' }), 0);
  t.equal(page.value(`${name}_bucket`, { le: '0.064' }), 1);
  t.ok((page.value('kubeproxy_sync_proxy_rules_last_timestamp_seconds') ?? 0) > 1e9);
  t.equal(page.value('kpng_userspace_sync_failures_total'), 1);
  t.equal(page.value('kpng_userspace_service_ports'), 3);
  t.equal(page.value('kpng_userspace_problems_total', { code: 'KPNG_PORTAL_CONFLICT' }), 1);
  t.equal(page.value('kpng_userspace_problems', { code: 'KPNG_LISTEN_PERMISSION' }), 3);
});

t.test('many service ports are read in parts, and other work runs in between', async (t) => {
  const all = Array.from({ length: 1234 }, (_, n) => servicePort(`ns/s-${n}:http`, 'TCP', 1));
  const byName = new Map(all.map((each) => [each.name, each]));
  const sizes: number[] = [];
  let turns = 0;
  const metrics = createMetrics({ version: '0' });
  t.teardown(() => metrics.close());
  metrics.observe({
    engine: 'node',
    portal: 'none',
    limits: DEFAULT_LIMITS,
    names: () => [...byName.keys(), 'ns/gone:http'],
    snapshot(names = new Set()) {
      sizes.push(names.size);
      setImmediate(() => (turns += 1));
      return [...names].flatMap((name) => byName.get(name) ?? []);
    },
    problems: () => [],
  });
  let text = '';
  for await (const piece of metrics.render()) text += piece;
  t.same(sizes, [250, 250, 250, 250, 235]);
  t.ok(turns >= 2);
  const page = parseMetrics(text);
  t.equal(
    page.samples.filter(({ name }) => name === 'kpng_userspace_connections_active').length,
    1234,
  );
  t.equal(page.value('kpng_userspace_limit_used', { limit: 'max-connections' }), 1234);
});

t.test('two scrapes at once get the same values', async (t) => {
  const health = new Health();
  health.failing('portalFailing', { code: 'KPNG_PORTAL_FAILED', what: 'the rules' });
  const both = Promise.withResolvers<void>();
  let waiting = 0;
  const verdict = async () => {
    waiting += 1;
    if (waiting === 2) both.resolve();
    await both.promise;
    return health.verdict;
  };
  const metrics = createMetrics({ version: '0', verdict });
  t.teardown(() => metrics.close());
  for (const page of await Promise.all([scrapePage(metrics), scrapePage(metrics)])) {
    t.equal(page.value('kpng_userspace_build_info'), 1);
    t.not(health.verdict.reasons.length, 0);
    for (const { code, state } of health.verdict.reasons) {
      t.equal(page.value('kpng_userspace_health', { reason: code }), HEALTH_STATES.indexOf(state));
    }
  }
});
