/** Timers of a watch: Node remembers each duration that one was set for, so a busy watch must not set many. */
import t from 'tap';
import { service } from '../support/fake-api/objects.ts';
import { startFakeApi } from '../support/fake-api/server.ts';
import { loadHasher } from '../../src/api/hash.ts';
import { KubeSource } from '../../src/kube/source.ts';
import { GlobalStore } from '../../src/store/global-store.ts';
import { systemClock, type Clock } from '../../src/util/clock.ts';
import { SELECTION } from '../support/kube-rig.ts';
import { until } from '../support/until.ts';

t.test('a busy watch sets no timer for each event', async (t) => {
  const api = await startFakeApi(t);
  let timers = 0;
  // Time that passes with every look at it, as in a watch of many minutes.
  let now = 0;
  const clock: Clock = {
    now: () => (now += 7.3),
    setTimer(ms, callback) {
      timers += 1;
      return systemClock.setTimer(ms, callback);
    },
  };
  const store = new GlobalStore({ hasher: await loadHasher() });
  const source = await KubeSource.open({
    config: { kubeconfig: '', server: api.url, env: {} },
    selection: SELECTION,
    userAgent: 'test',
    clock,
  });
  const stop = new AbortController();
  const done = source.feed(store, stop.signal);
  await until(() => store.synced && api.watches().length === 3);
  for (let i = 0; i < 300; i += 1) {
    const before = store.revision;
    api.upsert('services', service('demo/web', `10.96.${i >> 8}.${i & 255}`));
    await until(() => store.revision > before);
  }
  t.ok(timers < 50, `${timers} timers`);
  stop.abort();
  await done;
});
