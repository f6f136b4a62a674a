/** Watches and lists that end, stay quiet or hang, over real connections; the clock is the test's. */
import t from 'tap';
import { kubeReceived } from '../../src/kube/events.ts';
import { addApi, fill, lists, MORE } from '../support/kube-demo.ts';
import { startKubeRig } from '../support/kube-rig.ts';
import { collect } from '../support/sockets.ts';
import { until } from '../support/until.ts';

t.test('a watch that the server ends in time is begun again at once', async (t) => {
  const { api, clock, watching, settled, failures } = await startKubeRig(t, { prepare: fill });
  await watching();
  clock.advance(300_000);
  for (const watch of api.watches()) watch.end();
  await until(() => api.requests.filter(({ verb }) => verb === 'watch').length === 6);
  addApi(api);
  await settled(...MORE);
  t.strictSame(failures, []);
});

t.test('watches that the server ends at once make no loop', async (t) => {
  const { api, clock, watching, failures, advanceUntil } = await startKubeRig(t, { prepare: fill });
  await watching();
  const end = clock.now() + 120_000;
  await advanceUntil(() => {
    for (const watch of api.watches()) watch.end();
    return clock.now() >= end;
  }, 100);
  t.ok(failures.every(({ kind }) => kind === 'short'));
  t.ok(failures.length < 40, `${failures.length} in two minutes`);
});

t.test('a quiet watch stays for as long as it was asked for', async (t) => {
  const { api, clock, watching, settled, failures } = await startKubeRig(t, { prepare: fill });
  await watching();
  // A server without bookmarks says nothing at all for five minutes and more.
  clock.advance(470_000);
  addApi(api);
  await settled(...MORE);
  t.strictSame(failures, []);
  t.equal(api.watches().length, 3);
});

t.test('a watch on which nothing comes any more is noticed', async (t) => {
  const { api, watching, settled, failures, advanceUntil } = await startKubeRig(t, {
    prepare: fill,
  });
  await watching();
  const received = collect(t, kubeReceived);
  api.bookmark();
  await until(() => received.length === 3);
  // Bookmarks have come, so silence means something.
  for (const watch of api.watches()) watch.mute(true);
  addApi(api);
  await advanceUntil(() => failures.length === 3, 10_000);
  t.match(failures[0], { kind: 'silent', error: { message: /nothing came for 150 s/ } });
  await advanceUntil(() => api.watches('services').some((watch) => !watch.muted));
  await settled(...MORE);
  t.equal(lists(api), 1);
});

t.test('a list that hangs in the middle is given up', async (t) => {
  const { api, store, failures, advanceUntil } = await startKubeRig(t, {
    prepare(api) {
      fill(api);
      api.fault({
        fault: { kind: 'stall', text: '{"kind":"NodeList","it' },
        resource: 'nodes',
        times: 1,
      });
    },
  });
  await until(() => lists(api, 'nodes') === 1 && api.watches().length === 2);
  await advanceUntil(() => failures.length === 1, 5000);
  t.match(failures, [{ kind: 'silent', resource: 'nodes' }]);
  await advanceUntil(() => store.synced);
  t.equal(lists(api, 'nodes'), 2);
});
