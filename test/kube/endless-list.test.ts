import t from 'tap';
import { startKubeRig } from '../support/kube-rig.ts';
import { until } from '../support/until.ts';

t.test('a server that gives the same page again and again is not asked for ever', async (t) => {
  const text = '{"metadata":{"resourceVersion":"7","continue":"on-and-on"},"items":[]}';
  const { api, store, failures, advanceUntil } = await startKubeRig(t, {
    prepare(api) {
      api.fault({ fault: { kind: 'body', text }, resource: 'services', times: 2 });
    },
  });
  await until(() => failures.length === 1);
  t.match(failures, [
    {
      kind: 'malformed',
      resource: 'services',
      error: { message: /the list goes on where it did before/ },
    },
  ]);
  t.notOk(store.synced);
  await advanceUntil(() => store.synced);
  const lists = api.requests.filter(
    ({ resource, query }) => resource === 'services' && !query.has('watch'),
  );
  t.equal(lists.length, 3, 'two of those, and one that is right');
});
