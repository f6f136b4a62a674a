/** The server goes away and comes back, over real connections; the clock is the test's. */
import t from 'tap';
import { sourceConnected, sourceDisconnected } from '../../src/store/events.ts';
import { MORE, STATE, addApi, lists, watchFilled } from '../support/kube-rig.ts';
import { collect } from '../support/sockets.ts';
import { until } from '../support/until.ts';

t.test('server unreachable: the state stays until the server is back', async (t) => {
  const lost = collect(t, sourceDisconnected);
  const connected = collect(t, sourceConnected);
  const { api, clock, settled, failures, advanceUntil, store, source } = await watchFilled(t);
  await api.stop();
  await until(() => failures.length === 3);
  t.strictSame(
    failures.map(({ kind }) => kind),
    ['cut', 'cut', 'cut'],
  );
  // Ten minutes.
  const end = clock.now() + 600_000;
  let before = failures.length;
  await advanceUntil(() => clock.now() >= end, 500);
  await settled(...STATE);
  t.ok(store.synced);
  const attempts = failures.slice(3);
  t.ok(attempts.every(({ kind }) => kind === 'unreachable'));
  // Three attempts at the beginning, then one after another with waits that grow to ten seconds.
  t.ok(attempts.length > 40 && attempts.length < 75, `${attempts.length} attempts`);
  const waits = attempts.map(({ retryInMs }) => retryInMs);
  t.ok(waits.slice(12).every((wait) => wait === 10_000));
  addApi(api);
  await api.start();
  before = clock.now();
  await advanceUntil(() => api.watches().length === 3);
  t.ok(clock.now() - before <= 12_000, `${clock.now() - before} ms later`);
  await settled(...MORE);
  t.equal(lists(api), 1, 'from where it was');
  t.equal(lost.length, failures.length);
  await until(() => connected.length === 2);
  t.equal(source.snapshot().failures.size, 0);
});

t.test('while the server is unreachable only one of the three retries', async (t) => {
  const { api, clock, failures, advanceUntil } = await watchFilled(t);
  // It takes connections but says nothing, so that an attempt lasts.
  api.fault({ fault: { kind: 'silent' } });
  api.cut();
  await until(() => failures.length === 3);
  clock.advance(2000);
  const asked = api.requests.length;
  await until(() => api.requests.length === asked + 3);
  // None of the three was answered in time: the server is unreachable.
  clock.advance(30_000);
  await until(() => failures.length === 6);
  t.match(failures.at(-1)?.error.message, /no answer within 30 s/);
  const counts: number[] = [];
  for (let i = 0; i < 4; i += 1) {
    const so = api.requests.length;
    const failed = failures.length;
    await advanceUntil(() => api.requests.length > so, 500);
    await advanceUntil(() => failures.length > failed, 5000);
    counts.push(api.requests.length - so);
  }
  t.strictSame(counts, [1, 1, 1, 1]);
});
