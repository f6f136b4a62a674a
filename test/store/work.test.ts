/** A change of one service or endpoint is work for that one only, whatever else there is and reader there is. */
import t, { type Test } from 'tap';
import { LocalReaders } from '../../src/store/local-readers.ts';
import { ServiceRecord } from '../../src/store/service-record.ts';
import { emptyCluster, pod } from '../support/cluster.ts';
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
  const open = Array.from({ length: readers }, () => source.open({ onEvicted: () => {} }));
  for (const [i, reader] of open.entries()) textsOf(reader.next(`n${i % 7}`));
  const looks: string[] = [];
  const property = Object.getOwnPropertyDescriptor(ServiceRecord.prototype, 'views');
  const views = property?.value as ServiceRecord['views'];
  t.teardown(() => Object.defineProperty(ServiceRecord.prototype, 'views', property ?? {}));
  ServiceRecord.prototype.views = function (hasher) {
    looks.push(this.service?.key ?? '');
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
