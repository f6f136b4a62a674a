/** A change of one service is work for that service only, whatever else there is and whoever reads. */
import t, { type Test } from 'tap';
import { LocalReaders } from '../../src/store/local-readers.ts';
import { ServiceRecord } from '../../src/store/service-record.ts';
import { emptyCluster, pod } from '../support/cluster.ts';
import { textsOf } from '../support/frames.ts';

/** Notes which services anybody looks into from now on. */
function watchLooks(t: Test): string[] {
  const looks: string[] = [];
  const { prototype } = ServiceRecord;
  const views = Object.getOwnPropertyDescriptor(prototype, 'views');
  if (views?.get === undefined) throw new Error('there are no views');
  t.teardown(() => Object.defineProperty(prototype, 'views', views));
  Object.defineProperty(prototype, 'views', {
    ...views,
    get(this: ServiceRecord) {
      looks.push(this.service?.key ?? '');
      return views.get?.call(this) as unknown;
    },
  });
  return looks;
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
  const looks = watchLooks(t);
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
