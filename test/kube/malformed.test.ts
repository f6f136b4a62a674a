/** Answers that are none, over real connections; the clock is the test's. */
import t from 'tap';
import { addApi, fill, lists, MORE, STATE } from '../support/kube-demo.ts';
import { startKubeRig } from '../support/kube-rig.ts';
import { until } from '../support/until.ts';

t.test('a line that is no event: counted, and listed again', async (t) => {
  for (const line of [
    '{"type":"ADDED","obj',
    'not json at all',
    '{"type":"MOVED","object":{}}',
    '[]',
  ]) {
    const { api, watching, settled, failures, advanceUntil } = await startKubeRig(t, {
      prepare: fill,
    });
    await watching();
    const [watch] = api.watches('services');
    watch?.raw(`${line}\n`);
    await until(() => failures.length === 1);
    t.match(failures, [{ kind: 'malformed', relist: true, resource: 'services' }], line);
    addApi(api);
    await advanceUntil(() => lists(api) === 2);
    await settled(...MORE);
    t.equal(lists(api, 'nodes'), 1, 'the others are not concerned');
  }
});

t.test('a line without end does not fill the memory', async (t) => {
  const { api, watching, settled, failures, advanceUntil } = await startKubeRig(t, {
    limits: { maxEventBytes: 100_000 },
    prepare: fill,
  });
  await watching();
  const [watch] = api.watches('endpointslices');
  watch?.raw(`{"type":"ADDED","object":{"x":"${'y'.repeat(150_000)}`);
  await until(() => failures.length === 1);
  t.match(failures[0], { kind: 'malformed', error: { message: /more than 100000 bytes/ } });
  await advanceUntil(() => lists(api, 'endpointslices') === 2);
  await settled(...STATE);
});

t.test('an event that is cut in the middle is fetched again', async (t) => {
  const { api, watching, settled, failures, advanceUntil } = await startKubeRig(t, {
    prepare: fill,
  });
  await watching();
  const [watch] = api.watches('services');
  watch?.raw('{"type":"MODIFIED","object":{"metadata":{"name":"web"');
  api.cut();
  await until(() => failures.length === 3);
  addApi(api);
  await advanceUntil(() => api.watches().length === 3);
  await settled(...MORE);
  t.equal(lists(api), 1);
});

t.test('an answer to a list that is none', async (t) => {
  for (const text of [
    '<html>login</html>',
    '{"kind":"ServiceList"}',
    '{"metadata":{},"items":[]}',
  ]) {
    const { api, store, failures, advanceUntil } = await startKubeRig(t, {
      prepare(api) {
        fill(api);
        api.fault({ fault: { kind: 'body', text }, resource: 'services', times: 1 });
      },
    });
    await until(() => failures.length === 1);
    t.match(failures, [{ kind: 'malformed', resource: 'services' }], text);
    t.notOk(store.synced);
    await advanceUntil(() => store.synced);
    t.equal(lists(api), 2);
  }
});
