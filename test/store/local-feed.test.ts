import t, { type Test } from 'tap';
import { loadHasher } from '../../src/api/hash.ts';
import { sourceSynced } from '../../src/store/events.ts';
import type { GlobalStore } from '../../src/store/global-store.ts';
import { feedLocalSink } from '../../src/store/local-feed.ts';
import type { LocalSink, LocalView } from '../../src/store/local-view.ts';
import { NodeView } from '../../src/store/node-view.ts';
import { Cluster, pod } from '../support/cluster.ts';
import { listening } from '../support/sockets.ts';
import { RecordingSink, shapeOf } from '../support/recording-sink.ts';
import { until } from '../support/until.ts';

/** Feeds a sink from a cluster that the test writes to. */
async function feed(t: Test, sink: LocalSink) {
  const stop = new AbortController();
  const started = Promise.withResolvers<Cluster>();
  const source = {
    name: 'a test',
    async feed(store: GlobalStore, signal: AbortSignal): Promise<void> {
      started.resolve(new Cluster(store));
      await new Promise((resolve) => {
        signal.addEventListener('abort', resolve);
      });
    },
  };
  const options = { source, nodeName: 'n1', hasher: await loadHasher() };
  const done = feedLocalSink(options, sink, stop.signal);
  t.teardown(async () => {
    stop.abort();
    await done;
  });
  return { cluster: await started.promise, stop, done };
}

t.test('nothing before the state is complete, then each change for the node', async (t) => {
  const synced: string[] = [];
  listening(t, sourceSynced, ({ source, services, changed }) => {
    synced.push(`${source} ${services} ${changed}`);
  });
  const sink = new RecordingSink();
  const { cluster } = await feed(t, sink);
  cluster.service('demo/web').endpoints('demo/web', pod('a', '10.0.0.1', 'n1'));
  await new Promise(setImmediate);
  t.equal(sink.unread, 0);
  cluster.complete();
  t.strictSame((await sink.next()).shape, ['demo/web(a)']);
  cluster.node('n2', 'z2').endpoints('demo/none', pod('x', '10.0.0.9'));
  await new Promise(setImmediate);
  t.equal(sink.unread, 0, 'neither concerns the node');
  cluster.endpoints('demo/web', pod('a', '10.0.0.1', 'n1'), pod('b', '10.0.0.2', 'n2'));
  const second = await sink.next();
  t.strictSame(second.changed, ['demo/web']);
  t.strictSame(second.shape, ['demo/web(a b)']);
  cluster.deleteService('demo/web');
  t.strictSame((await sink.next()).shape, []);
  t.strictSame(synced, ['a test 1 1', 'a test 1 1', 'a test 0 1']);
});

t.test('a busy sink gets changes combined', async (t) => {
  const sink = new RecordingSink({ automatic: false });
  const { cluster } = await feed(t, sink);
  cluster.complete();
  const first = await sink.next();
  const looks = t.capture(NodeView.prototype, 'next', Reflect.get(NodeView.prototype, 'next'));
  for (let i = 0; i < 5; i++) cluster.service(`demo/s${i}`);
  first.settle();
  const second = await sink.next();
  t.equal(second.changed.length, 5);
  second.settle();
  await new Promise(setImmediate);
  t.equal(looks().length, 1, 'the store is read once for all of them');
});

t.test('the view stays until the next change set, which counts what differs', async (t) => {
  const counts: unknown[] = [];
  listening(t, sourceSynced, ({ operations }) => counts.push(operations));
  const views: LocalView[] = [];
  const gate = Promise.withResolvers<void>();
  const { cluster } = await feed(t, {
    async sync({ view }) {
      if (views.push(view) === 1) await gate.promise;
    },
  });
  cluster.atOnce((all) => {
    all.service('demo/a').endpoints('demo/a', pod('x', '10.0.0.1')).service('demo/b').complete();
  });
  await until(() => views.length === 1);
  const before = contentOf(views[0]);
  cluster.deleteService('demo/b').service('demo/c');
  cluster.endpoints('demo/a', pod('y', '10.0.0.2'));
  t.strictSame(contentOf(views[0]), before);
  t.equal(views[0]?.size, 2);
  t.ok(views[0]?.get('demo/b'));
  gate.resolve();
  await until(() => views.length === 2);
  t.strictSame(shapeOf(views[1] as LocalView), ['demo/a(y)', 'demo/c()']);
  t.strictSame(counts, [4, 5], 'with the Sync');
});

/** A view with everything in it, to be compared. */
function contentOf(view: LocalView | undefined): unknown {
  return [...(view?.entries() ?? [])].map(({ service, endpoints }) => [service, [...endpoints]]);
}

t.test('a node that moves to another zone gets other endpoints', async (t) => {
  const sink = new RecordingSink();
  const { cluster } = await feed(t, sink);
  const pods = ['z1', 'z2'].map((zone) => pod(zone, '10.0.0.1', '', { hints: { zones: [zone] } }));
  cluster
    .node('n1', 'z1')
    .service('demo/web')
    .endpoints('demo/web', ...pods);
  cluster.service('demo/api').complete();
  t.strictSame((await sink.next()).shape, ['demo/api()', 'demo/web(z1)']);
  cluster.node('n1', 'z2');
  t.strictSame((await sink.next()).shape, ['demo/api()', 'demo/web(z2)']);
});
