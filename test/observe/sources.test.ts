/** What real sources and servers report: in the log and in the metrics. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { FileSource } from '../../src/file/source.ts';
import { subscribeLog } from '../../src/observe/log-rules.ts';
import { SOURCE_RULES } from '../../src/observe/log-sources.ts';
import { createMetrics } from '../../src/observe/metrics.ts';
import { startApiRig } from '../support/api-rig.ts';
import { captureLog } from '../support/captured-log.ts';
import { feedSink } from '../support/file-rig.ts';
import { startKubeRig } from '../support/kube-rig.ts';
import { scrapePage } from '../support/metrics-page.ts';
import { shortDir } from '../support/short-dir.ts';
import { until } from '../support/until.ts';

t.test('a version that is too old is no news, and can be looked up with -v=2', async (t) => {
  for (const [verbosity, wanted] of [
    [0, []],
    [2, ['Watch ended; watching again', 'Listed again', 'Watching again']],
  ] as const) {
    const { log, messages } = await captureLog(verbosity);
    const { api, watching, advanceUntil } = await startKubeRig(t);
    await watching();
    const end = subscribeLog(log, SOURCE_RULES);
    api.watches('services')[0]?.error(410, 'too old resource version: 1 (2)');
    await advanceUntil(() => api.requests.filter(({ verb }) => verb === 'watch').length === 4);
    await until(() => messages().length >= wanted.length);
    end();
    t.strictSame(messages(), wanted);
  }
});

t.test('ineffective parts of a file are reported once, until they return', async (t) => {
  const path = join(shortDir(t), 'state.yaml');
  const { log, lines } = await captureLog();
  const end = subscribeLog(log, SOURCE_RULES);
  const stop = new AbortController();
  const ended = feedSink(new FileSource({ path }), 'n', { sync: async () => {} }, stop.signal);
  t.teardown(async () => {
    stop.abort();
    await ended;
    end();
  });
  const item = (name: string, servicename: string) =>
    `- service: {name: ${name}}\n  endpoints: [{servicename: ${servicename}}]\n`;
  /** The services with a warning that is logged when the file gets this content. */
  const warned = async (...items: string[]): Promise<unknown[]> => {
    const before = lines().length;
    writeFileSync(path, `services:\n${items.join('')}`);
    const since = () => lines().slice(before);
    await until(() => since().some(({ msg }) => msg === 'Loaded the state file'));
    return since().flatMap(({ at = [] }) => at);
  };
  const at = (service: number) => `services[${service}].endpoints[0].servicename`;
  t.strictSame(await warned(item('a', 'x')), [at(0)]);
  t.strictSame(await warned(item('b', 'b'), item('a', 'x')), [], 'the same, further down');
  t.strictSame(await warned(item('b', 'y'), item('a', 'x')), [at(0)], 'another one');
  t.strictSame(await warned(item('b', 'z'), item('a', 'x')), [at(0)], 'with another text');
  t.strictSame(await warned(item('b', 'z')), []);
  t.strictSame(await warned(item('b', 'z'), item('a', 'x')), [at(1)], 'it has come back');
  writeFileSync(path, 'services: 1\n');
  await until(() => lines().at(-1)?.msg === 'State file invalid; serving the last good state');
  t.strictSame(await warned(item('b', 'z'), item('a', 'x'), item('c', 'c')), [], 'after an error');
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
