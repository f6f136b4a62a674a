import t from 'tap';
import { kubeTriggered } from '../../src/kube/events.ts';
import { triggerTimes } from '../../src/kube/watch.ts';
import { endpoint, slice, type KubeObject } from '../support/fake-api/objects.ts';
import { startKubeRig } from '../support/kube-rig.ts';
import { collect } from '../support/sockets.ts';
import { until } from '../support/until.ts';

const KEY = 'endpoints.kubernetes.io/last-change-trigger-time';

function changedAt(at: string, address = '10.1.0.5'): KubeObject {
  const plain = slice('demo/web-x', [endpoint(address)]);
  return { ...plain, metadata: { ...plain.metadata, annotations: { [KEY]: at } } };
}

t.test('slices that change say when their cause was; lists say nothing', async (t) => {
  const told = collect(t, kubeTriggered);
  const soon = new Date(Date.now() + 60_000).toISOString();
  const { api, watching } = await startKubeRig(t, {
    prepare: (api) => api.upsert('endpointslices', changedAt(soon)),
  });
  await watching();
  t.same(told, [], 'what was there at the start took nobody’s time');
  api.upsert('endpointslices', changedAt('2020-01-01T00:00:00Z', '10.1.0.6'));
  api.upsert('endpointslices', changedAt('not a time', '10.1.0.7'));
  api.upsert('endpointslices', changedAt(soon, '10.1.0.8'));
  await until(() => told.length > 0);
  t.same(told, [{ times: [Date.parse(soon)] }]);
});

t.test('objects without the annotation, and those that are gone, have no time', async (t) => {
  const raw = changedAt('2026-01-01T00:00:00Z') as unknown as Record<string, unknown>;
  t.same(triggerTimes([{ type: 'MODIFIED', raw }], 0), [Date.UTC(2026, 0, 1)]);
  t.same(triggerTimes([{ type: 'DELETED', raw }], 0), []);
  t.same(triggerTimes([{ type: 'ADDED', raw: {} }], 0), []);
});
