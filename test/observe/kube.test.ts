/** What is reported about the Kubernetes source: in the log, in the metrics and by the health. */
import t from 'tap';
import { followEvents, Health } from '../../src/observe/health.ts';
import { SOURCE_RULES } from '../../src/observe/log-sources.ts';
import { subscribeLog } from '../../src/observe/log-rules.ts';
import { createMetrics } from '../../src/observe/metrics.ts';
import { service } from '../support/fake-api/objects.ts';
import { captureLog } from '../support/captured-log.ts';
import { startKubeRig } from '../support/kube-rig.ts';
import { scrapePage } from '../support/metrics-page.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { until } from '../support/until.ts';

t.test('the log says whom it talks to, what is forbidden and what to do', async (t) => {
  const { log, lines } = await captureLog(0);
  t.teardown(subscribeLog(log, SOURCE_RULES, new FakeClock()));
  let allow = (): unknown => undefined;
  const { api, failures, advanceUntil } = await startKubeRig(t, {
    prepare(api) {
      allow = api.deny('services');
    },
  });
  await until(() => failures.length === 1 && api.watches().length === 2);
  allow();
  await advanceUntil(() => lines().some(({ msg }) => msg === 'Connected to the source'));
  t.match(lines(), [
    {
      level: 'info',
      msg: 'Connected to the Kubernetes API',
      server: api.url,
      config: '--server',
      user: 'system:anonymous',
      by: 'nothing',
      selector: '!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name',
    },
    {
      level: 'warn',
      msg: 'Kubernetes API refused a request (forbidden); serving last known state',
      code: 'KPNG_KUBE_FORBIDDEN',
      err: /kubectl create clusterrolebinding/,
    },
    { level: 'info', msg: 'Connected to the source' },
  ]);
  t.equal(lines().length, 3);
});

t.test('a version that is too old is no news, and can be looked up with -v=2', async (t) => {
  for (const [verbosity, wanted] of [
    [0, []],
    [2, ['Watch ended; watching again', 'Listed again', 'Watching again']],
  ] as const) {
    const { log, lines } = await captureLog(verbosity);
    const { api, watching, advanceUntil } = await startKubeRig(t);
    await watching();
    const end = subscribeLog(log, SOURCE_RULES, new FakeClock());
    api.watches('services')[0]?.error(410, 'too old resource version: 1 (2)');
    await advanceUntil(() => api.requests.filter(({ verb }) => verb === 'watch').length === 4);
    await until(() => lines().length >= wanted.length);
    end();
    t.strictSame(
      lines().map(({ msg }) => msg),
      wanted,
    );
  }
});

t.test('metrics count by resource and cause', async (t) => {
  const metrics = createMetrics({ version: '0' });
  t.teardown(() => metrics.close());
  const { api, watching, failures, advanceUntil, settled } = await startKubeRig(t);
  await watching();
  api.upsert('services', service('demo/web', '10.96.0.10'));
  api.bookmark();
  await settled('demo/web 10.96.0.10: ');
  api.watches('nodes')[0]?.raw('garbage\n');
  await until(() => failures.length === 1);
  await advanceUntil(() => api.requests.filter(({ verb }) => verb === 'watch').length === 4);
  const page = await scrapePage(metrics);
  const resource = 'services';
  t.equal(page.value('kpng_userspace_kube_events_total', { resource, type: 'added' }), 1);
  t.equal(page.value('kpng_userspace_kube_watches_total', { resource }), 1);
  t.equal(page.value('kpng_userspace_kube_lists_total', { resource, cause: 'start' }), 1);
  const nodes = { resource: 'nodes', cause: 'malformed' };
  t.equal(page.value('kpng_userspace_kube_failures_total', nodes), 1);
  t.equal(page.value('kpng_userspace_kube_lists_total', nodes), 1);
  t.equal(page.value('kpng_userspace_source_failures_total'), 1);
  const age = page.value('kpng_userspace_source_last_event_age_seconds', { resource }) ?? -1;
  t.ok(age >= 0 && age < 60, `${age} s`);
});

t.test('health is degraded while something is forbidden, and says what', async (t) => {
  const health = new Health(() => 0);
  t.teardown(followEvents(health));
  health.synced();
  const { source } = await startKubeRig(t, { prepare: (api) => void api.deny('nodes') });
  await until(() => source.snapshot().failures.size === 1);
  t.match(health.verdict, {
    state: 'degraded',
    reasons: [
      {
        code: 'source-forbidden',
        message:
          /^a part of the source has been forbidden since .* \(KPNG_KUBE_FORBIDDEN\); serving/,
      },
    ],
    probes: { healthz: { status: 200 } },
  });
});
