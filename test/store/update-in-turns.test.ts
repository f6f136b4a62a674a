/** A large change that is made over several turns, of which readers see nothing before it is whole. */
import t from 'tap';
import { Node } from '../../src/api/generated/globalv1/api.ts';
import { LocalReaders } from '../../src/store/local-readers.ts';
import { emptyCluster, pod, sliceOf } from '../support/cluster.ts';
import { textsOf } from '../support/frames.ts';
import { service } from '../support/messages.ts';

/** Keeps the thread busy for longer than a turn may last. */
function work(): void {
  const end = performance.now() + 12;
  while (performance.now() < end);
}

t.test('everything else has its turn between the steps', async (t) => {
  const { store } = await emptyCluster();
  let turns = 0;
  let going = true;
  const count = (): void => {
    turns++;
    if (going) setImmediate(count);
  };
  setImmediate(count);
  const changed = await store.updateInTurns(function* (transaction) {
    for (let i = 0; i < 5; i++) {
      work();
      transaction.setService(service(`demo/s${i}`));
      yield;
    }
  });
  going = false;
  t.equal(changed, true);
  t.ok(turns >= 4, `${turns} turns`);
  t.equal(store.revision, 1, 'and it is one change all the same');
  t.equal(store.serviceCount, 5);
});

t.test('readers see the former state until the last step', async (t) => {
  const cluster = await emptyCluster();
  const { store } = cluster;
  cluster
    .node('n', 'north')
    .service('demo/a')
    .endpoints('demo/a', pod('a-0', '10.0.0.1'))
    .complete();
  const readers = new LocalReaders(store);
  const reader = readers.open({ onEvicted: () => {} });
  const told = (): string[] | undefined => textsOf(reader.next('n'));
  t.strictSame(told(), ['S1 demo/a', 'S2 demo/a/a-0']);
  let during: string[] | undefined = ['not asked'];
  let late: string[] | undefined;
  let zone = '';
  await store.updateInTurns(function* (transaction) {
    transaction.deleteService('demo', 'a');
    transaction.setService(service('demo/b'));
    transaction.setSource(sliceOf('demo/b', 'b-x', [pod('b-0', '10.0.0.2')]));
    transaction.setNode(Node.fromPartial({ name: 'n' }));
    yield;
    during = told();
    const latecomer = readers.open({ onEvicted: () => {} });
    late = textsOf(latecomer.next('n'));
    latecomer.close();
    ({ zone } = store.viewNode('n'));
    transaction.deleteService('demo', 'none');
    yield;
  });
  t.equal(during, undefined);
  t.strictSame(late, ['S1 demo/a', 'S2 demo/a/a-0'], 'also one that comes in the middle');
  t.equal(zone, 'north');
  t.strictSame(told(), ['S1 demo/b', 'S2 demo/b/b-0', 'D2 demo/a/a-0', 'D1 demo/a']);
  t.equal(store.viewNode('n').zone, '');
  t.equal(store.history, 0, 'nothing of the former state is kept');
});

t.test('there is one transaction at a time, and one that fails ends', async (t) => {
  const { store } = await emptyCluster();
  const failing = store.updateInTurns(function* (transaction) {
    transaction.setService(service('demo/a'));
    work();
    yield;
    throw new Error('no more');
  });
  t.throws(() => store.update(() => {}), { message: /open already/ });
  await t.rejects(failing, { message: 'no more' });
  t.equal(store.serviceCount, 1, 'what it did before stands');
  t.equal(await store.updateInTurns(() => []), false, 'and there may be another one');
});
