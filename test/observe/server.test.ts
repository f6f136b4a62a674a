import t from 'tap';
import { KpngClient } from '../../src/client/client.ts';
import { parseTarget } from '../../src/client/target.ts';
import { createMetrics } from '../../src/observe/metrics.ts';
import { startApiRig } from '../support/api-rig.ts';
import { SOURCE_RULES } from '../../src/observe/log-sources.ts';
import { subscribeLog } from '../../src/observe/log-rules.ts';
import { captureLog } from '../support/captured-log.ts';
import { until } from '../support/until.ts';

t.test('clients of the API are counted', async (t) => {
  const metrics = createMetrics({ version: '0' });
  t.teardown(() => metrics.close());
  const value = async (name: string): Promise<string | undefined> => {
    const page = await metrics.registry.metrics();
    return page.split('\n').find((line) => line.startsWith(`kpng_userspace_api_${name} `));
  };
  const { cluster, watch, watchGlobal, server } = await startApiRig(t, {
    limits: { maxWatchers: 10 },
  });
  cluster.complete();
  const [local, other] = [watch(), watchGlobal()];
  for (const call of [local, other]) {
    call.request('n');
    await call.texts();
  }
  t.match(await value('watchers{api="local"}'), / 1$/);
  t.match(await value('watches_total{api="global"}'), / 1$/);
  await watch().status;
  t.match(await value('refused_total{limit="max-watchers"}'), / 1$/);
  local.cancel();
  await until(() => server.watchers === 1);
  t.match(await value('watchers{api="local"}'), / 0$/);
  t.match(await value('change_sets_total{api="local"}'), / 1$/);
  t.match(await value('lagging_total'), / 0$/);
});

t.test('clients come and go in the log from -v=1 on', async (t) => {
  for (const verbosity of [0, 1]) {
    const { log, lines } = await captureLog(verbosity);
    const end = subscribeLog(log, SOURCE_RULES);
    const { cluster, watch, server } = await startApiRig(t);
    cluster.complete();
    const call = watch();
    call.request('node-a');
    await call.texts();
    call.cancel();
    await until(() => server.watchers === 0);
    end();
    const messages = lines().map(({ msg }) => msg);
    t.strictSame(
      messages.filter((msg) => msg !== 'Serving the API'),
      verbosity === 0 ? [] : ['Client started to watch', 'Client stopped watching'],
    );
    if (verbosity === 1) t.match(lines().at(-1), { api: 'local', node: 'node-a', syncs: 1 });
  }
});

t.test("kpng's own metrics count what is written and what is told", async (t) => {
  const metrics = createMetrics({ version: '0' });
  t.teardown(() => metrics.close());
  const value = async (name: string): Promise<number> => {
    const page = await metrics.registry.metrics();
    return Number(
      page
        .split('\n')
        .find((line) => line.startsWith(`${name} `))
        ?.split(' ')[1],
    );
  };
  const { cluster, watch, server } = await startApiRig(t);
  cluster.service('demo/web').service('demo/web').complete();
  t.equal(await value('kpng_k8s_api_events_total'), 3, 'also what changed nothing');
  const call = watch();
  call.request('n');
  t.strictSame(await call.texts(), ['R', 'S1 demo/web', 'Y']);
  const told = (): Promise<number> => value('kpng_node_local_events_total');
  let count = 0;
  await until(() => {
    void told().then((now) => (count = now));
    return count === 3;
  });
  const port = server.address.kind === 'tcp' ? server.address.port : 0;
  const target = parseTarget(`127.0.0.1:${port}`);
  await new KpngClient({ target, nodeName: 'n', once: true }).run({ sync: async () => {} });
  await until(() => {
    void told().then((now) => (count = now));
    return count === 3 + 3 + 2;
  });
  t.pass('a client counts what it is told, but for the Reset');
});
