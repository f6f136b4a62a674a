/** A change of one service or endpoint is work for that one only, whatever else there is and reader there is. */
import t, { type Test } from 'tap';
import { LocalReaders } from '../../src/store/local-readers.ts';
import { NodeView } from '../../src/store/node-view.ts';
import { ServiceRecord } from '../../src/store/service-views.ts';
import { LocalEndpoint } from '../../src/store/stored.ts';
import { emptyCluster, pod, sliceOf } from '../support/cluster.ts';
import { textsOf } from '../support/api-rig.ts';

/** What is looked into for a change of one service, when there are so many of them, and of readers. */
async function looksForOneChange(t: Test, services: number, readers: number): Promise<string[]> {
  const cluster = await emptyCluster();
  cluster.atOnce((all) => {
    for (let i = 0; i < services; i++) {
      all.service(`demo/s${i}`).endpoints(`demo/s${i}`, pod(`p${i}`, '10.0.0.1', `n${i % 7}`));
    }
    all.complete();
  });
  const source = new LocalReaders(cluster.store);
  const open = Array.from({ length: readers }, () => source.open(() => {}));
  for (const [i, reader] of open.entries()) textsOf(reader.next(`n${i % 7}`));
  const looks: string[] = [];
  const property = Object.getOwnPropertyDescriptor(ServiceRecord.prototype, 'views');
  const views = property?.value as ServiceRecord['views'];
  t.teardown(() => Object.defineProperty(ServiceRecord.prototype, 'views', property ?? {}));
  ServiceRecord.prototype.views = function (hasher) {
    looks.push(`${this.service?.namespace}/${this.service?.name}`);
    return views.call(this, hasher);
  };
  cluster.endpoints('demo/s3', pod('p3', '10.0.0.2', 'n3'));
  for (const [i, reader] of open.entries()) {
    t.strictSame(textsOf(reader.next(`n${i % 7}`)), ['S2 demo/s3/p3']);
  }
  return [...looks];
}

t.test('the number of services and of readers', async (t) => {
  const few = await looksForOneChange(t, 10, 4);
  const many = await looksForOneChange(t, 1500, 4);
  t.strictSame([...new Set(many)], ['demo/s3'], 'no other service is looked into');
  t.equal(many.length, few.length, 'the work does not grow with the services');
  const crowd = await looksForOneChange(t, 1500, 12);
  t.strictSame([...new Set(crowd)], ['demo/s3']);
});

/** How many endpoints are evaluated for changes of one of so many of a service. */
async function looksForOneEndpoint(t: Test, count: number): Promise<number> {
  const cluster = await emptyCluster();
  const pods = Array.from({ length: count }, (_, i) => {
    return pod(`p${i}`, `10.0.${i >> 8}.${i & 255}`, `n${i % 7}`);
  });
  cluster.service('demo/web').endpoints('demo/web', ...pods);
  cluster.complete();
  const view = new NodeView(cluster.store, 'n3', false);
  await view.next();
  t.equal(view.get('demo/web')?.endpoints.size, count);
  let looks = 0;
  const property = Object.getOwnPropertyDescriptor(LocalEndpoint.prototype, 'endpoint');
  t.teardown(() => Object.defineProperty(LocalEndpoint.prototype, 'endpoint', property ?? {}));
  Object.defineProperty(LocalEndpoint.prototype, 'endpoint', {
    ...property,
    get(this: LocalEndpoint) {
      looks += 1;
      return property?.get?.call(this) as unknown;
    },
  });
  const one = (name: string, v4: string) =>
    sliceOf('demo/web', 'web-slice', [pod(name, v4, 'n3')]).endpoints;
  // Changed, added, removed.
  const steps = [
    [{ from: 0, to: 500 }, ...one('p500', '10.9.0.1'), { from: 501, to: count }],
    [{ from: 0, to: 700 }, ...one('new', '10.9.0.2'), { from: 700, to: count }],
    [
      { from: 0, to: 10 },
      { from: 11, to: count + 1 },
    ],
  ];
  for (const endpoints of steps) {
    const { endpoints: _, ...source } = sliceOf('demo/web', 'web-slice', []);
    cluster.store.update((transaction) => transaction.setSource({ ...source, endpoints }));
    t.match(await view.next(), { changed: new Set(['demo/web']), operations: 2 });
    t.ok(view.get('demo/web'));
    t.equal(cluster.store.history.kept, 0, 'nothing of earlier states is kept');
  }
  const endpoints = view.get('demo/web')?.endpoints;
  t.equal(endpoints?.size, count);
  t.match(endpoints?.get('p500'), { ips: { v4: ['10.9.0.1'] } });
  t.equal(endpoints?.has('new'), true);
  t.equal(endpoints?.has('p10'), false);
  return looks;
}

t.test('the number of endpoints of a service', async (t) => {
  const few = await looksForOneEndpoint(t, 2000);
  t.ok(few > 0);
  t.equal(await looksForOneEndpoint(t, 10_000), few, 'the work does not grow with the endpoints');
});
