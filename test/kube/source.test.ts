import t from 'tap';
import { kubeOrphans } from '../../src/kube/events.ts';
import { endpoint, node, service, slice } from '../support/fake-api/objects.ts';
import { startKubeRig } from '../support/kube-rig.ts';
import { collect } from '../support/sockets.ts';
import { until } from '../support/until.ts';

const WEB = service('demo/web', '10.96.0.10');

t.test('the state is complete only once all three lists are', async (t) => {
  for (const last of ['services', 'endpointslices', 'nodes'] as const) {
    const gate = Promise.withResolvers<void>();
    const { api, store, lists, watching } = await startKubeRig(t, {
      prepare(api) {
        api.upsert('services', WEB);
        api.fault(gate.promise, { resource: last });
      },
    });
    await until(() => lists.length === 2 && api.watches().length === 2);
    t.notOk(store.synced, `without ${last}`);
    gate.resolve();
    await watching();
    t.ok(store.synced, `with ${last}`);
  }
});

t.test('large lists arrive in pages; a page that is too large is made smaller', async (t) => {
  const { api, watching, lists, store } = await startKubeRig(t, {
    limits: { pageSize: 64, maxPageBytes: 20_000 },
    prepare(api) {
      for (let i = 0; i < 100; i += 1)
        api.upsert('services', service(`demo/s${i}`, `10.96.1.${i}`));
    },
  });
  await watching();
  t.equal(store.serviceCount, 100);
  const listed = lists.find(({ resource }) => resource === 'services');
  t.match(listed, { objects: 100, pages: 7, why: 'start' });
  t.strictSame(
    api.requests
      .filter(({ verb, resource }) => verb === 'list' && resource === 'services')
      .map(({ query }) => query.get('limit')),
    ['64', ...Array(7).fill('16')],
  );
});

t.test('V20 (kept): which Services are requested', async (t) => {
  const labels = { 'service.kubernetes.io/service-proxy-name': 'acme' };
  const headless = { 'service.kubernetes.io/headless': '', ...labels };
  const start = async (proxyName: string, selector: string) => {
    const rig = await startKubeRig(t, {
      selection: { proxyName },
      prepare(api) {
        const ours = service('demo/ours', '10.96.0.12', { labels });
        api.upsert('services', WEB, ours, service('demo/no', '10.96.0.13', { labels: headless }));
      },
    });
    await rig.watching();
    const asked = rig.api.requests.filter(({ resource }) => resource === 'services');
    for (const { query } of asked) t.equal(query.get('labelSelector'), selector);
    return rig;
  };
  const [headlessLabel, proxyLabel] = Object.keys(headless);
  const plain = await start('', `!${headlessLabel},!${proxyLabel}`);
  await plain.settled('demo/web 10.96.0.10: ');
  const acme = await start('acme', `!${headlessLabel},${proxyLabel}=acme`);
  await acme.settled('demo/ours 10.96.0.12: ');
  // A service that is given to another proxy is gone from here.
  plain.api.upsert('services', service('demo/web', '10.96.0.10', { labels }));
  await plain.settled();
});

t.test('what is requested: of nodes only metadata; bookmarks and a random timeout', async (t) => {
  const labels = { 'app.example/tier': 'front', other: 'x' };
  const annotations = { note: 'kept', secret: 'no' };
  const { api, store, watching, settled } = await startKubeRig(t, {
    selection: { serviceLabels: ['app.*'], serviceAnnotations: ['n?te'] },
    prepare(api) {
      api.upsert('nodes', node('node-a', 'north'));
      api.upsert('services', service('demo/web', '10.96.0.10', { labels, annotations }));
    },
  });
  await watching();
  await settled('demo/web 10.96.0.10: ', 'node node-a north');
  const web = store.services.get('demo/web')?.service;
  t.strictSame(web?.labels, { 'app.example/tier': 'front' }, 'labels are passed on by pattern');
  t.strictSame(web?.annotations, { note: 'kept' });
  for (const { query } of api.requests.filter(({ verb }) => verb === 'watch')) {
    t.equal(query.get('allowWatchBookmarks'), 'true');
    t.equal(query.get('timeoutSeconds'), '450', 'the middle of 300 to 600');
    t.match(query.get('resourceVersion'), /^\d+$/);
  }
  const accepts = api.requests
    .filter(({ resource }) => resource === 'nodes')
    .map(({ headers }) => headers.accept ?? '');
  t.match(accepts[0], /^application\/json;as=PartialObjectMetadataList;/);
  t.match(accepts[1], /^application\/json;as=PartialObjectMetadata;/);
});

t.test('an object without a name is reported and left out; the rest works', async (t) => {
  const { api, watching, settled, invalid } = await startKubeRig(t);
  await watching();
  const [watch] = api.watches('services');
  watch?.raw('{"type":"ADDED","object":{"metadata":{"resourceVersion":"1"}}}\n');
  api.upsert('services', WEB);
  await settled('demo/web 10.96.0.10: ');
  t.match(invalid, [
    { error: { code: 'KPNG_OP_INVALID', message: /^Service "" in namespace ""/ } },
  ]);
});

t.test('slices without their service are reported after a while', async (t) => {
  const orphans = collect(t, kubeOrphans);
  const { api, clock, watching, settled } = await startKubeRig(t, {
    prepare(api) {
      api.upsert('services', WEB);
      api.upsert('endpointslices', slice('demo/ghost-1', [endpoint('10.1.0.9')]));
      api.upsert('endpointslices', slice('demo/web-1', [endpoint('10.1.0.5')]));
    },
  });
  await watching();
  await settled('demo/web 10.96.0.10: 10.1.0.5@node-a');
  t.strictSame(orphans, []);
  clock.advance(10_000);
  await until(() => orphans.length > 0);
  const example = { slice: 'demo/ghost-1', service: 'demo/ghost' };
  t.strictSame(orphans, [{ count: 1, example }]);
  api.upsert('services', service('demo/ghost', '10.96.0.66'));
  await settled('demo/ghost 10.96.0.66: 10.1.0.9@node-a', 'demo/web 10.96.0.10: 10.1.0.5@node-a');
  clock.advance(10_000);
  await until(() => orphans.length > 1);
  t.strictSame(orphans[1], { count: 0, example: undefined });
});
