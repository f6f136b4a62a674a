import t from 'tap';
import { fill, nodeOf, sliceOf } from '../../bench/control/cluster.ts';
import { emptyCluster } from '../support/cluster.ts';

t.test('the cluster has the size asked for, and each generation is a change', async (t) => {
  const size = { services: 20, endpointsPerService: 10, nodes: 7 };
  const { store } = await emptyCluster();
  store.update((transaction) => fill(transaction, size));
  t.ok(store.synced);
  t.equal(store.serviceCount, 20);
  t.equal(store.nodes.size, 7);
  const endpoints = store.services.cells().flatMap(({ value }) => value?.endpoints ?? []);
  t.equal(endpoints.length, 200);
  const addresses = endpoints.map((info) => info.endpoint?.ips?.v4[0]);
  t.equal(new Set(addresses).size, 200);
  const nodes = Array.from({ length: 7 }, (_, index) => nodeOf(index));
  for (const generation of [1, 2, 300]) {
    const slice = sliceOf(3, size, nodes, generation);
    t.ok(store.update((transaction) => transaction.setSource(slice)));
    t.notOk(store.update((transaction) => transaction.setSource(slice)));
  }
});
