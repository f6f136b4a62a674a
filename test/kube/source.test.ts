import t from 'tap';
import {
  kubeFailed,
  kubeNode,
  kubeOrphans,
  kubeTriggered,
  kubeWatching,
} from '../../src/kube/events.ts';
import { type Ineligible, TO_BE_DELETED } from '../../src/kube/map.ts';
import { opInvalid, sourceDisconnected } from '../../src/store/events.ts';
import { endpoint, type KubeObject, node, service, slice } from '../support/fake-api/objects.ts';
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
  const invalid = collect(t, opInvalid);
  const { api, watching, settled } = await startKubeRig(t);
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

function tainted(...keys: string[]): KubeObject {
  const plain = node('node-a');
  const taints = keys.map((key) => ({ key, effect: 'NoSchedule' }));
  return { ...plain, spec: { ...(plain['spec'] as object), taints } };
}

function deleted(): KubeObject {
  const plain = node('node-a');
  const deletionTimestamp = '2026-01-01T00:00:00Z';
  return { ...plain, metadata: { ...plain.metadata, deletionTimestamp } };
}

const gone = node('gone');

t.test('taint and deletion are reported once each, and when they end', async (t) => {
  const told = collect(t, kubeNode);
  const watching = collect(t, kubeWatching);
  const { api } = await startKubeRig(t, {
    source: { nodeName: 'node-a' },
    prepare: (api) => api.upsert('nodes', tainted('other'), node('node-b')),
  });
  await until(() => watching.some(({ resource }) => resource === 'node'));
  t.same(told, [], 'an eligible node is no news');
  const asked = api.requests.map(({ query }) => query.get('fieldSelector'));
  t.same(new Set(asked), new Set([null, 'metadata.name=node-a']), 'of other nodes no more is read');
  const steps: [KubeObject, Ineligible][] = [
    [tainted('other', TO_BE_DELETED), 'tainted'],
    [tainted(TO_BE_DELETED), 'tainted'],
    // A node that disappears keeps its state.
    [gone, 'tainted'],
    [tainted(TO_BE_DELETED), 'tainted'],
    [tainted(), undefined],
    [deleted(), 'deleted'],
    [node('node-a'), undefined],
  ];
  for (const [object, ineligible] of steps) {
    if (object === gone) api.delete('nodes', 'node-a');
    else api.upsert('nodes', object);
    await until(() => told.at(-1)?.ineligible === ineligible);
  }
  const causes = told.map(({ ineligible }) => ineligible);
  t.same(causes, ['tainted', undefined, 'deleted', undefined]);
});

t.test('the networks of the node’s pods are passed on when they change', async (t) => {
  const given: (readonly string[])[] = [];
  const { api } = await startKubeRig(t, {
    source: { nodeName: 'node-a', onPodNetworks: (networks) => given.push(networks) },
    prepare: (api) => api.upsert('nodes', node('node-a'), node('node-b')),
  });
  await until(() => given.length === 1);
  const dual = ['10.244.1.0/24', 'fd00:244:1::/64'];
  api.upsert('nodes', tainted('other'));
  api.upsert('nodes', { ...node('node-a'), spec: { podCIDRs: [...dual, 'nonsense'] } });
  await until(() => given.length === 2);
  api.upsert('nodes', { ...node('node-a'), spec: {} });
  await until(() => given.length === 3);
  t.same(given, [['10.244.1.0/24'], dual, []]);
});

t.test('if the server does not return the node, everything else works', async (t) => {
  const failed = collect(t, kubeFailed);
  const lost = collect(t, sourceDisconnected);
  const { store } = await startKubeRig(t, {
    source: { nodeName: 'node-a' },
    prepare: (api) => api.deny('nodes'),
  });
  await until(() => failed.some(({ resource }) => resource === 'node'));
  await until(() => store.synced);
  const lists = lost.map(({ error }) => /^list \w+/.exec(error.message)?.[0]);
  t.strictSame(new Set(lists), new Set(['list nodes']), 'it is no part of the state');
});

const KEY = 'endpoints.kubernetes.io/last-change-trigger-time';

function changedAt(at: string, address = '10.1.0.5'): KubeObject {
  const plain = slice('demo/web-x', [endpoint(address)]);
  return { ...plain, metadata: { ...plain.metadata, annotations: { [KEY]: at } } };
}

t.test('changed slices have the time of their cause; lists have none', async (t) => {
  const told = collect(t, kubeTriggered);
  const soon = new Date(Date.now() + 60_000).toISOString();
  const { api, watching } = await startKubeRig(t, {
    prepare: (api) => api.upsert('endpointslices', changedAt(soon)),
  });
  await watching();
  t.same(told, [], 'what was there at the start took no one’s time');
  api.upsert('endpointslices', changedAt('2020-01-01T00:00:00Z', '10.1.0.6'));
  api.upsert('endpointslices', changedAt('not a time', '10.1.0.7'));
  api.upsert('endpointslices', changedAt(soon, '10.1.0.8'));
  await until(() => told.length > 0);
  t.same(told, [{ times: [Date.parse(soon)] }]);
  api.delete('endpointslices', 'demo/web-x');
  api.upsert('endpointslices', slice('demo/web-y', [endpoint('10.1.0.9')]));
  api.upsert('endpointslices', changedAt(soon, '10.1.0.8'));
  await until(() => told.length > 1);
  t.equal(told.flatMap(({ times }) => times).length, 2, 'one that is deleted has none');
});
