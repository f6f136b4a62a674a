import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { startFileSink } from '../../src/file/sink.ts';
import { sinkFailed, sinkRecovered, type SinkFailed } from '../../src/store/events.ts';
import { emptyCluster } from '../support/cluster.ts';
import { listening } from '../support/mailbox.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { stateOf } from '../support/file-rig.ts';
import { until } from '../support/until.ts';

/** A sink that writes when the test says so. */
async function setUp(dir: string) {
  const cluster = await emptyCluster();
  const clock = new FakeClock();
  const path = join(dir, 'state.yaml');
  const sink = startFileSink({ store: cluster.store, path, clock, random: () => 0.5 });
  /** The number of services in the file. */
  const size = (): number =>
    existsSync(path) ? stateOf(readFileSync(path, 'utf8')).services.size : -1;
  return { cluster, clock, path, sink, size };
}

t.test('changes are combined: one write a second, with the newest state', async (t) => {
  const { cluster, clock, sink, size, path } = await setUp(t.testdir());
  cluster.service('demo/web');
  t.equal(clock.pending, 0, 'nothing before the state is complete');
  cluster.complete();
  clock.advance(0);
  await until(() => size() === 1);
  for (let i = 0; i < 5; i++) cluster.service(`demo/s${i}`);
  await until(() => clock.pending === 1);
  clock.advance(999);
  t.equal(clock.pending, 1);
  clock.advance(1);
  await until(() => size() === 6);
  await new Promise(setImmediate);
  t.equal(clock.pending, 0, 'nothing has changed');
  cluster.service('demo/last');
  await sink.close();
  t.equal(size(), 7, 'closing writes what is missing');
  await sink.close();
  t.strictSame(readdirSync(join(path, '..')), ['state.yaml'], 'no other file is left');
  t.equal(cluster.store.history.kept, 0);
});

t.test('a write that fails is reported, and retried with the current state', async (t) => {
  const failures: SinkFailed[] = [];
  const recovered: number[] = [];
  listening(t, sinkFailed, (event) => failures.push(event));
  listening(t, sinkRecovered, (event) => recovered.push(event.failures));
  const dir = join(t.testdir(), 'gone');
  const { cluster, clock, size, sink } = await setUp(dir);
  cluster.service('demo/a').complete();
  clock.advance(0);
  await until(() => failures.length === 1);
  t.match(failures, [
    { error: { code: 'KPNG_SINK_FAILED', message: /gone.*ENOENT/ }, retryInMs: 1000 },
  ]);
  mkdirSync(dir);
  cluster.service('demo/b');
  await until(() => clock.pending === 1);
  clock.advance(1000);
  await until(() => recovered.length === 1);
  t.equal(size(), 2);
  cluster.service('demo/c');
  await until(() => clock.pending === 1);
  clock.advance(1000);
  await until(() => size() === 3);
  t.strictSame(recovered, [1]);
  rmSync(dir, { recursive: true });
  cluster.service('demo/d');
  await sink.close();
  t.equal(failures.length, 2, 'the last attempt');
});
