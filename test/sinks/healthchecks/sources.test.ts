/** What load balancers are answered, wherever the state comes from. */
import { join } from 'node:path';
import t from 'tap';
import { loadHasher } from '../../../src/api/hash.ts';
import { KpngClient } from '../../../src/client/client.ts';
import { GlobalClient } from '../../../src/client/global-client.ts';
import { parseTarget } from '../../../src/client/target.ts';
import { FileSink } from '../../../src/file/sink.ts';
import { FileSource } from '../../../src/file/source.ts';
import { KubeSource } from '../../../src/kube/source.ts';
import { parseListen } from '../../../src/server/listen-address.ts';
import { startApiServer } from '../../../src/server/server.ts';
import { HealthCheckSink } from '../../../src/sinks/healthchecks/sink.ts';
import type { GlobalSource } from '../../../src/store/global-store.ts';
import { feedLocalSink } from '../../../src/store/local-feed.ts';
import type { LocalSink } from '../../../src/store/local-view.ts';
import { endpoint, service, slice } from '../../support/fake-api/objects.ts';
import { SELECTION, startKubeRig } from '../../support/kube-rig.ts';
import { freePort } from '../../support/sockets.ts';

const nodeName = 'node-a';
const TERMINATING = { conditions: { ready: false, serving: true, terminating: true } };

const LINUX = process.platform === 'linux' ? false : 'only on linux';

t.test('a node whose endpoints all terminate gets no more traffic', { skip: LINUX }, async (t) => {
  const port = await freePort();
  const spec = {
    type: 'LoadBalancer',
    externalTrafficPolicy: 'Local',
    healthCheckNodePort: port,
  };
  const { api, store } = await startKubeRig(t, {
    prepare(api) {
      api.upsert('services', service('demo/web', '10.96.0.10', { spec }));
      api.upsert('endpointslices', slice('demo/web-x', [endpoint('10.1.0.5')]));
    },
  });
  const server = await startApiServer({ store, listen: parseListen('tcp://127.0.0.1:0') });
  const { address } = server;
  const target = parseTarget(`127.0.0.1:${address.kind === 'tcp' ? address.port : 0}`);
  const path = join(t.testdir({}), 'state.yaml');
  const file = new FileSink({ store, path, extended: true, intervalMs: 1 });

  const hasher = await loadHasher();
  const from = (source: GlobalSource) => (sink: LocalSink, signal: AbortSignal) =>
    feedLocalSink({ source, nodeName, hasher }, sink, signal);
  const config = { kubeconfig: '', server: api.url, env: {} };
  const kube = await KubeSource.open({ config, selection: SELECTION, userAgent: 'test' });
  const sources = {
    kube: from(kube),
    file: from(new FileSource({ path })),
    api: from(new GlobalClient({ target })),
    local: (sink: LocalSink, signal: AbortSignal) =>
      new KpngClient({ target, nodeName }).run(sink, signal),
  };
  const stop = new AbortController();
  const checks = Object.values(sources).map((feed, index) => {
    const sink = new HealthCheckSink({ addresses: () => [`127.0.0.${index + 1}`] });
    return { sink, fed: feed(sink, stop.signal) };
  });
  t.teardown(async () => {
    stop.abort();
    await Promise.all(checks.flatMap(({ sink, fed }) => [sink.close(), fed]));
    await file.close();
    server.destroy();
  });
  const statusOf = async (index: number): Promise<number | undefined> => {
    const response = await fetch(`http://127.0.0.${index + 1}:${port}/`).catch(() => undefined);
    return response?.status;
  };
  const answers = async (status: number): Promise<void> => {
    for (const [index, name] of Object.keys(sources).entries()) {
      // Each question takes its time, so this does not spin.
      const end = performance.now() + 20_000;
      let last = await statusOf(index);
      while (last !== status && performance.now() < end) last = await statusOf(index);
      t.equal(last, status, name);
    }
  };
  await answers(200);
  api.upsert('endpointslices', slice('demo/web-x', [endpoint('10.1.0.5', TERMINATING)]));
  await answers(503);
  api.upsert('endpointslices', slice('demo/web-x', [endpoint('10.1.0.6')]));
  await answers(200);
});
