/** What real sources and servers report: in the log and in the metrics. */
import t from 'tap';
import { subscribeLog } from '../../src/observe/log-rules.ts';
import { SOURCE_RULES } from '../../src/observe/log-table.ts';
import { createMetrics } from '../../src/observe/metrics.ts';
import { startApiRig } from '../support/api-rig.ts';
import { captureLog } from '../support/captured-log.ts';
import { startKubeRig } from '../support/kube-rig.ts';
import { scrapePage } from '../support/metrics-page.ts';
import { until } from '../support/until.ts';

t.test('a version that is too old is no news, and can be looked up with -v=2', async (t) => {
  for (const [verbosity, wanted] of [
    [0, []],
    [2, ['Watch ended; watching again', 'Listed again', 'Watching again']],
  ] as const) {
    const { log, messages } = await captureLog(verbosity);
    const end = subscribeLog(log, SOURCE_RULES);
    const { api, watching, advanceUntil } = await startKubeRig(t);
    await watching();
    await until(() => messages().includes('Connected to the source'));
    const before = messages().length;
    api.watches('services')[0]?.error(410, 'too old resource version: 1 (2)');
    await advanceUntil(() => api.requests.filter(({ verb }) => verb === 'watch').length === 4);
    await until(() => messages().length >= before + wanted.length);
    end();
    t.strictSame(messages().slice(before), wanted);
  }
});

t.test("kpng's own metrics count what is written and what is sent", async (t) => {
  const metrics = createMetrics({ version: '0' });
  t.teardown(() => metrics.close());
  const value = async (name: string) => (await scrapePage(metrics)).value(name);
  const { cluster, watch } = await startApiRig(t);
  cluster.service('demo/web').service('demo/web').complete();
  t.equal(await value('kpng_k8s_api_events_total'), 3, 'also what changed nothing');
  const call = watch();
  call.request('n');
  t.strictSame(await call.texts(), ['R', 'S1 demo/web', 'Y']);
  while ((await value('kpng_node_local_events_total')) !== 3);
  t.pass('what one client was sent');
});
