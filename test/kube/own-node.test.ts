/** The node that a source works for: whether load balancers may use it. */
import t from 'tap';
import { kubeFailed, kubeNode, kubeWatching } from '../../src/kube/events.ts';
import { sourceDisconnected } from '../../src/store/events.ts';
import { type Ineligible, TO_BE_DELETED } from '../../src/kube/map.ts';
import { node, type KubeObject } from '../support/fake-api/objects.ts';
import { startKubeRig } from '../support/kube-rig.ts';
import { collect } from '../support/sockets.ts';
import { until } from '../support/until.ts';

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
