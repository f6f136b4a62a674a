/** What the server says no to, and versions that it does not know, over real connections; the clock is the test's. */
import t from 'tap';
import { sourceDisconnected } from '../../src/store/events.ts';
import { service } from '../support/fake-api/objects.ts';
import type { FakeApi } from '../support/fake-api/server.ts';
import {
  MORE,
  STATE,
  addApi,
  fill,
  lists,
  startKubeRig,
  watchFilled,
} from '../support/kube-rig.ts';
import { collect } from '../support/sockets.ts';
import { until } from '../support/until.ts';

t.test('429 and 503: retried only after the requested delay, which has a limit', async (t) => {
  for (const [resource, code, retryAfter, retryInMs] of [
    ['services', 429, 7, 8000],
    ['nodes', 503, 7, 8000],
    ['services', 429, 31_536_000, 301_000],
  ] as const) {
    const { api, clock, store, failures, advanceUntil } = await startKubeRig(t, {
      prepare(api) {
        fill(api);
        api.fault({ code, retryAfter }, { resource, times: 1 });
      },
    });
    await until(() => failures.length === 1 && api.watches().length === 2);
    t.notOk(store.synced);
    t.match(failures, [{ kind: code === 429 ? 'throttled' : 'server', retryInMs }]);
    const before = clock.now();
    await advanceUntil(() => store.synced);
    t.ok(clock.now() - before >= retryInMs);
    t.equal(lists(api, resource), 2);
  }
});

t.test('403 on services: reported with the remedy, and retried', async (t) => {
  const lost = collect(t, sourceDisconnected);
  let allow = (): unknown => undefined;
  const { api, store, failures, settled, advanceUntil } = await startKubeRig(t, {
    prepare(api) {
      fill(api);
      allow = api.deny('services');
    },
  });
  await until(() => failures.length === 1 && api.watches().length === 2);
  t.notOk(store.synced, 'nothing can be served without services');
  t.match(failures, [{ kind: 'forbidden', resource: 'services', relist: false }]);
  t.equal(failures[0]?.error.code, 'KPNG_KUBE_FORBIDDEN');
  t.equal(
    failures[0]?.error.message,
    `list services at ${api.url}: 403 services is forbidden: User "system:anonymous" cannot list ` +
      'resource "services" in API group "" at the cluster scope; allow "system:anonymous" to list and ' +
      'watch services, such as with: kubectl create clusterrolebinding kpng ' +
      '--clusterrole=system:node-proxier --user=system:anonymous',
  );
  t.equal(lost.length, 1);
  allow();
  await advanceUntil(() => store.synced);
  await settled(...STATE);
});

t.test('403 on nodes: the rest works, and the nodes come when they may', async (t) => {
  let allow = (): unknown => undefined;
  const { api, store, failures, settled, advanceUntil } = await startKubeRig(t, {
    prepare(api) {
      fill(api);
      allow = api.deny('nodes');
    },
  });
  await until(() => store.synced);
  await settled('demo/web 10.96.0.10: 10.1.0.5@node-a');
  t.match(failures, [{ kind: 'forbidden', resource: 'nodes' }]);
  addApi(api);
  await settled('demo/api 10.96.0.11: ', 'demo/web 10.96.0.10: 10.1.0.5@node-a');
  allow();
  await advanceUntil(() => api.watches('nodes').length > 0);
  await settled(...MORE);
});

for (const gone of ['status', 'event'] as const) {
  t.test(`410 as ${gone}: it lists again, after a wait`, async (t) => {
    const { api, settled, failures, advanceUntil, lists: seen } = await watchFilled(t);
    api.gone = gone;
    api.cut();
    await until(() => failures.length === 3);
    addApi(api);
    api.delete('endpointslices', 'demo/web-x');
    api.delete('nodes', 'node-a');
    api.compact();
    await advanceUntil(() => api.watches().length === 3);
    await settled('demo/api 10.96.0.11: ', 'demo/web 10.96.0.10: ');
    const relists = failures.filter(({ relist }) => relist);
    for (const each of relists) t.match(each, { kind: 'gone', routine: true, retryInMs: 1600 });
    t.strictSame(seen.map(({ why }) => why).join(), 'start,start,start,gone,gone,gone');
  });
}

t.test('a list that cannot be continued starts over', async (t) => {
  const { watching, store, failures, advanceUntil } = await startKubeRig(t, {
    limits: { pageSize: 10 },
    prepare(api) {
      for (let i = 0; i < 30; i += 1) api.upsert('services', service(`demo/s${i}`, `10.96.1.${i}`));
      const reply = { code: 410, message: 'The provided continue parameter is too old' };
      // The first page is good, the second is refused.
      for (const fault of [Promise.resolve(), reply]) {
        api.fault(fault, { resource: 'services', times: 1 });
      }
    },
  });
  await until(() => failures.length === 1);
  t.match(failures, [{ kind: 'gone', relist: true }]);
  await advanceUntil(() => store.synced);
  await watching();
  t.equal(store.serviceCount, 30);
});

t.test('a server restored to an older state is listed again', async (t) => {
  const metadata = { resourceVersion: '5' };
  const bookmark = { type: 'BOOKMARK', object: { kind: 'Service', apiVersion: 'v1', metadata } };
  const message = 'Too large resource version: 2000, current: 1000';
  for (const [restore, problem] of [
    [
      (api: FakeApi) => api.watches('services')[0]?.raw(`${JSON.stringify(bookmark)}\n`),
      /went back from version \d+ to 5$/,
    ],
    [
      (api: FakeApi) => {
        api.fault({ code: 504, message }, { resource: 'services', verb: 'watch', times: 1 });
        api.cut();
      },
      /Too large resource version/,
    ],
  ] as const) {
    const { api, settled, failures, advanceUntil } = await watchFilled(t);
    restore(api);
    await advanceUntil(() => failures.some(({ relist }) => relist));
    t.match(failures.at(-1), { kind: 'gone', error: { message: problem } });
    addApi(api);
    await advanceUntil(() => api.watches().length === 3 && lists(api) === 2);
    await settled(...MORE);
  }
});

t.test('after a restore, equal versions have different contents', async (t) => {
  const { api, store, settled, failures, advanceUntil } = await watchFilled(t);
  const former = api.get('services', 'demo/web');
  const restored = { ...former, spec: { clusterIP: '10.96.0.99' } };
  const relist = async (resourceVersion: string): Promise<void> => {
    const before = failures.length;
    const list = { kind: 'ServiceList', metadata: { resourceVersion }, items: [restored] };
    api.fault(JSON.stringify(list), { resource: 'services', verb: 'list', times: 1 });
    api.watches('services')[0]?.raw('garbage\n');
    await until(() => failures.length > before);
    const lists = api.requests.length;
    await advanceUntil(() => api.watches('services').length > 0 && api.requests.length > lists + 1);
  };
  const { revision } = store;
  await relist(String(api.version));
  t.equal(store.revision, revision, 'a version that is known is not even looked at');
  await relist('1');
  await settled('demo/web 10.96.0.99: 10.1.0.5@node-a', 'node node-a north');
});
