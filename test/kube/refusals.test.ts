/** What the server says no to, over real connections; the clock is the test's. */
import t from 'tap';
import { sourceDisconnected } from '../../src/store/events.ts';
import { addApi, fill, lists, MORE, STATE } from '../support/kube-demo.ts';
import { startKubeRig } from '../support/kube-rig.ts';
import { collect } from '../support/sockets.ts';
import { until } from '../support/until.ts';

t.test('429 and 503: not before the server wants to be asked', async (t) => {
  for (const code of [429, 503]) {
    const { api, clock, store, failures, advanceUntil } = await startKubeRig(t, {
      prepare(api) {
        fill(api);
        const fault = { kind: 'status', reply: { code, retryAfter: 7 } } as const;
        api.fault({ fault, resource: 'services', times: 1 });
      },
    });
    await until(() => failures.length === 1);
    t.match(failures, [{ kind: code === 429 ? 'throttled' : 'server', retryInMs: 8000 }]);
    const before = clock.now();
    await advanceUntil(() => store.synced);
    t.ok(clock.now() - before >= 8000);
    t.equal(lists(api), 2);
  }
});

t.test('a server that wants to be left alone for a year is asked sooner', async (t) => {
  const { failures } = await startKubeRig(t, {
    prepare(api) {
      const fault = { kind: 'status', reply: { code: 429, retryAfter: 31_536_000 } } as const;
      api.fault({ fault, resource: 'services', times: 1 });
    },
  });
  await until(() => failures.length === 1);
  t.equal(failures[0]?.retryInMs, 301_000);
});

t.test('403 on services: said with the cure, tried again, and the state comes', async (t) => {
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

t.test('403 later on: what is known stays, and the rest goes on', async (t) => {
  const { api, watching, settled, failures, advanceUntil } = await startKubeRig(t, {
    prepare: fill,
  });
  await watching();
  const allow = api.deny('endpointslices');
  api.cut();
  await advanceUntil(() => failures.some(({ kind }) => kind === 'forbidden'));
  await advanceUntil(() => api.watches('services').length > 0);
  addApi(api);
  await settled(...MORE);
  allow();
  await advanceUntil(() => api.watches().length === 3);
  api.delete('endpointslices', 'demo/web-x');
  await settled('demo/api 10.96.0.11: ', 'demo/web 10.96.0.10: ', 'node node-a north');
});
