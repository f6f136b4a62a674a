import t from 'tap';
import { EndpointInfo, Node } from '../../src/api/generated/globalv1/api.ts';
import type { GlobalStore } from '../../src/store/global-store.ts';
import { storeWritten } from '../../src/store/events.ts';
import { LocalReaders } from '../../src/store/local-readers.ts';
import { emptyCluster, pod, sliceOf } from '../support/cluster.ts';
import { textsOf } from '../support/api-rig.ts';
import { service } from '../support/messages.ts';
import { collect } from '../support/sockets.ts';

function endpointsOf(store: GlobalStore, key: string): readonly EndpointInfo[] {
  return store.services.get(key)?.endpoints ?? [];
}

t.test('listeners hear of each change until they unsubscribe', async (t) => {
  const cluster = await emptyCluster();
  const { store } = cluster;
  const written = collect(t, storeWritten);
  let told = 0;
  const end = store.onChange(() => told++);
  cluster.service('demo/web').deleteService('demo/none').deleteNode('none').slice('demo/web', 's');
  t.same([store.revision, told], [1, 1], 'what changes nothing makes no revision');
  const changes = written.map(({ changed }) => changed);
  t.same(changes, [true, false, false, false]);
  end();
  cluster.service('demo/api');
  t.equal(told, 1);
});

t.test('unchanged endpoints keep their objects', async (t) => {
  const cluster = await emptyCluster();
  cluster.endpoints('demo/web', pod('a', '10.0.0.1'), pod('b', '10.0.0.2'));
  const [first, second] = endpointsOf(cluster.store, 'demo/web');
  cluster.endpoints('demo/web', pod('a', '10.0.0.1', 'n2'), pod('b', '10.0.0.2'));
  const last = endpointsOf(cluster.store, 'demo/web');
  t.not(last[0], first, 'it has moved to a node');
  t.equal(last[1], second);
});

t.test('data common to endpoints is stored once', async (t) => {
  const { store } = await emptyCluster();
  const info = (podName: string, node: string): object => ({
    podName,
    endpoint: { ips: { v4: ['10.0.0.1'] }, portOverrides: [{ name: 'http', port: 8080 }] },
    conditions: { ready: true },
    topology: { node, zone: 'z1' },
    hints: { zones: ['z1'] },
  });
  const slice = sliceOf('demo/web', 's', [info('a', 'n1'), info('b', 'n2'), info('c', 'n1')]);
  store.update((transaction) => transaction.setSource(slice));
  const [a, b, c] = endpointsOf(store, 'demo/web');
  t.strictSame([a, b, c], slice.endpoints, 'and it says the same');
  t.equal(a?.topology, c?.topology);
  t.not(a?.topology, b?.topology);
  t.equal(a?.conditions, b?.conditions);
  t.equal(a?.hints, b?.hints);
  t.equal(a?.endpoint?.portOverrides, b?.endpoint?.portOverrides);
});

t.test('the hash of a source is ignored', async (t) => {
  const { store } = await emptyCluster();
  const slice = sliceOf('demo/web', 's', [pod('a', '10.0.0.1')]);
  store.update((transaction) => transaction.setSource(slice));
  const hashed = slice.endpoints.map((info) => EndpointInfo.fromPartial({ ...info, hash: 7n }));
  t.notOk(store.update((transaction) => transaction.setSource({ ...slice, endpoints: hashed })));
});

/** Keeps the thread busy for longer than a turn may last. */
function work(): void {
  const end = performance.now() + 12;
  while (performance.now() < end);
}

t.test('other work runs between the steps', async (t) => {
  const { store } = await emptyCluster();
  let turns = 0;
  let going = true;
  const count = (): void => {
    turns++;
    if (going) setImmediate(count);
  };
  setImmediate(count);
  const changed = await store.updateInParts(function* (transaction) {
    for (let i = 0; i < 5; i++) {
      work();
      transaction.setService(`demo/s${i}`, service(`demo/s${i}`));
      yield;
    }
  });
  going = false;
  t.equal(changed, true);
  t.ok(turns >= 4, `${turns} turns`);
  t.equal(store.revision, 1, 'and it is one change all the same');
  t.equal(store.serviceCount, 5);
});

t.test('readers see the previous state until the last step', async (t) => {
  const cluster = await emptyCluster();
  const { store } = cluster;
  cluster
    .node('n', 'north')
    .service('demo/a')
    .endpoints('demo/a', pod('a-0', '10.0.0.1'))
    .complete();
  const readers = new LocalReaders(store);
  const reader = readers.open(() => {});
  const told = (): string[] | undefined => textsOf(reader.next('n'));
  t.strictSame(told(), ['S1 demo/a', 'S2 demo/a/a-0']);
  let during: string[] | undefined = ['not asked'];
  let late: string[] | undefined;
  let zone = '';
  await store.updateInParts(function* (transaction) {
    transaction.setService('demo/a', undefined);
    transaction.setService('demo/b', service('demo/b'));
    transaction.setSource(sliceOf('demo/b', 'b-x', [pod('b-0', '10.0.0.2')]));
    transaction.setNode('n', Node.fromPartial({ name: 'n' }));
    yield;
    during = told();
    const latecomer = readers.open(() => {});
    late = textsOf(latecomer.next('n'));
    latecomer.close();
    ({ zone } = store.viewNode('n', false));
    transaction.setService('demo/none', undefined);
    yield;
  });
  t.equal(during, undefined);
  t.strictSame(late, ['S1 demo/a', 'S2 demo/a/a-0'], 'also one that comes in the middle');
  t.equal(zone, 'north');
  t.strictSame(told(), ['S1 demo/b', 'S2 demo/b/b-0', 'D2 demo/a/a-0', 'D1 demo/a']);
  t.equal(store.viewNode('n', false).zone, '');
  t.equal(store.history.kept, 0, 'nothing of the last known state is kept');
});

t.test('one transaction at a time, and a failed one ends', async (t) => {
  const { store } = await emptyCluster();
  const throwing = () =>
    store.update((transaction) => {
      transaction.setService('demo/c', service('demo/c'));
      throw new Error('stop');
    });
  t.throws(throwing, { message: 'stop' });
  t.same([store.revision, store.serviceCount], [1, 1], 'its earlier writes stay');
  const failing = store.updateInParts(function* (transaction) {
    transaction.setService('demo/a', service('demo/a'));
    work();
    yield;
    throw new Error('no more');
  });
  t.throws(() => store.update(() => {}), { message: /open already/ });
  await t.rejects(failing, { message: 'no more' });
  t.equal(store.serviceCount, 2, 'what it did before stands');
  t.equal(await store.updateInParts(() => []), false, 'and there may be another one');
});
