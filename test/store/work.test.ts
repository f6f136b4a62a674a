/** A change of one service or endpoint is work for that one only, whatever else there is and reader there is. */
import t, { type Test } from 'tap';
import { LocalReaders } from '../../src/store/local-readers.ts';
import { ServiceRecord } from '../../src/store/service-record.ts';
import { LocalOps } from '../../src/store/local-view-readers.ts';
import { LocalState } from '../../src/store/local-state.ts';
import { StoredEndpoint } from '../../src/store/stored.ts';
import { emptyCluster, pod, sliceOf } from '../support/cluster.ts';
import { textsOf } from '../support/api-rig.ts';

/** Calls back whenever someone gets a property from now on. */
function watch<T extends object>(t: Test, prototype: T, name: string, onLook: (of: T) => void) {
  const property = Object.getOwnPropertyDescriptor(prototype, name);
  if (property?.get === undefined) throw new Error(`there is no ${name}`);
  t.teardown(() => Object.defineProperty(prototype, name, property));
  Object.defineProperty(prototype, name, {
    ...property,
    get(this: T) {
      onLook(this);
      return property.get?.call(this) as unknown;
    },
  });
}

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
  const open = Array.from({ length: readers }, () => source.open({ onEvicted: () => {} }));
  for (const [i, reader] of open.entries()) textsOf(reader.next(`n${i % 7}`));
  const looks: string[] = [];
  watch(t, ServiceRecord.prototype, 'views', ({ service }) => looks.push(service?.key ?? ''));
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

/** How often an endpoint is looked into for a change of one of so many of a service, 20 of them on each node. */
async function looksForOneEndpoint(t: Test, count: number): Promise<number> {
  const cluster = await emptyCluster();
  const pods = Array.from({ length: count }, (_, i) => {
    return pod(`p${i}`, `10.0.${i >> 8}.${i & 255}`, `n${i % (count / 20)}`);
  });
  cluster
    .service('demo/web')
    .endpoints('demo/web', ...pods)
    .complete();
  const reader = new LocalOps(cluster.store).open({ onEvicted: () => {} });
  const state = new LocalState();
  const takeAll = (): string[] => {
    for (const operation of reader.next('n3') ?? []) state.apply(operation);
    return [...state.sync().changed];
  };
  takeAll();
  let looks = 0;
  // The first change learns what there is. Then: changed, added, removed.
  const steps = [
    [[pod('p0', '10.1.0.0', 'n7')], { from: 1, to: count }],
    [{ from: 0, to: 500 }, [pod('p500', '10.1.0.1', 'n7')], { from: 501, to: count }],
    [{ from: 0, to: 700 }, [pod('new', '10.1.0.2', 'n7')], { from: 700, to: count }],
    [
      { from: 0, to: 10 },
      { from: 11, to: count + 1 },
    ],
  ];
  for (const [index, parts] of steps.entries()) {
    if (index === 1) watch(t, StoredEndpoint.prototype, 'info', () => (looks += 1));
    const { endpoints: _, ...source } = sliceOf('demo/web', 'web-slice', []);
    cluster.store.update((transaction) => {
      const given = parts.map((part) =>
        Array.isArray(part) ? sliceOf('demo/web', 'web-slice', part).endpoints : part,
      );
      transaction.patchSource(source, given);
    });
    t.strictSame(takeAll(), ['demo/web']);
  }
  const endpoints = state.get('demo/web')?.endpoints;
  t.equal(endpoints?.size, count);
  t.match(endpoints?.get('p500'), { ips: { v4: ['10.1.0.1'] } });
  t.equal(endpoints?.has('new'), true);
  t.equal(endpoints?.has('p10'), false);
  return looks;
}

t.test('the number of endpoints of a service', async (t) => {
  const few = await looksForOneEndpoint(t, 2000);
  const many = await looksForOneEndpoint(t, 20_000);
  t.equal(many, few, 'the work does not grow with the endpoints');
});
