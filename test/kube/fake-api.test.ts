/** The fake API server is right where a client that is not ours agrees with it. */
import {
  CoreV1Api,
  DiscoveryV1Api,
  KubeConfig,
  makeInformer,
  type V1Service,
} from '@kubernetes/client-node';
import t from 'tap';
import { endpoint, node, service, slice } from '../support/fake-api/objects.ts';
import { startFakeApi } from '../support/fake-api/server.ts';
import { until } from '../support/until.ts';

function configFor(server: string): KubeConfig {
  const config = new KubeConfig();
  config.loadFromClusterAndUser({ name: 'fake', server, skipTLSVerify: true }, { name: 'user' });
  return config;
}

t.test('the official client lists all objects, in pages', async (t) => {
  const api = await startFakeApi(t);
  for (let i = 0; i < 7; i += 1) api.upsert('services', service(`demo/s${i}`, `10.96.0.${i + 1}`));
  api.upsert('nodes', node('node-a', 'north'));
  api.upsert('endpointslices', slice('demo/s1-x', [endpoint('10.1.0.1')]));
  const core = configFor(api.url).makeApiClient(CoreV1Api);
  const names: (string | undefined)[] = [];
  let token: string | undefined;
  do {
    const page = await core.listServiceForAllNamespaces({
      limit: 3,
      ...(token !== undefined && { _continue: token }),
    });
    names.push(...page.items.map(({ metadata }) => metadata?.name));
    token = page.metadata?._continue;
  } while (token !== undefined);
  t.strictSame(names, ['s0', 's1', 's2', 's3', 's4', 's5', 's6']);
  const a = await core.readNode({ name: 'node-a' });
  t.equal(a.metadata?.labels?.['topology.kubernetes.io/zone'], 'north');
  const slices = await configFor(api.url)
    .makeApiClient(DiscoveryV1Api)
    .listNamespacedEndpointSlice({ namespace: 'demo' });
  t.strictSame(slices.items[0]?.endpoints?.[0]?.addresses, ['10.1.0.1']);
});

t.test('the official informer follows changes, within its selector', async (t) => {
  const api = await startFakeApi(t);
  api.upsert('services', service('demo/a', '10.96.0.1', { labels: { tier: 'x' } }));
  api.upsert('services', service('demo/b', '10.96.0.2'));
  const config = configFor(api.url);
  const core = config.makeApiClient(CoreV1Api);
  const informer = makeInformer<V1Service>(
    config,
    '/api/v1/services',
    () => core.listServiceForAllNamespaces({ labelSelector: 'tier=x' }),
    'tier=x',
  );
  t.teardown(() => informer.stop());
  await informer.start();
  await until(() => api.watches('services').length > 0);
  const nameOf = ({ metadata }: V1Service): string => metadata?.name ?? '';
  const names = (): string => [...new Set(informer.list().map(nameOf))].toSorted().join(' ');
  t.equal(names(), 'a');
  api.upsert('services', service('demo/b', '10.96.0.2', { labels: { tier: 'x' } }));
  await until(() => names() === 'a b');
  api.upsert('services', service('demo/a', '10.96.0.1'));
  await until(() => names() === 'b');
  api.delete('services', 'demo/b');
  await until(() => names() === '');
  t.pass('entering, leaving and deleting are reported');
});
