/** Answers that are none, and watches and lists that end, stay quiet or hang, over real connections. */
import t from 'tap';
import { kubeReceived, kubeWatching } from '../../src/kube/events.ts';
import { type Clock, systemClock } from '../../src/util/clock.ts';
import { service } from '../support/fake-api/objects.ts';
import {
  MORE,
  STATE,
  addApi,
  fill,
  lists,
  startKubeRig,
  watchFilled,
} from '../support/kube-rig.ts';
import { collect } from '../support/sockets.ts';
import { until } from '../support/until.ts';

t.test('an invalid event is counted, and the resource listed again', async (t) => {
  for (const line of [
    '{"type":"ADDED","obj\n',
    'not json at all\n',
    '{"type":"MOVED","object":{}}\n',
    '[]\n',
    // It has not ended, and never will.
    `{"type":"ADDED","object":{"x":"${'y'.repeat(150_000)}`,
  ]) {
    const { api, settled, failures, advanceUntil } = await watchFilled(t, {
      limits: { maxEventBytes: 100_000 },
    });
    const [watch] = api.watches('services');
    watch?.raw(line);
    await until(() => failures.length === 1);
    t.match(failures, [{ kind: 'malformed', relist: true, resource: 'services' }], line);
    addApi(api);
    await advanceUntil(() => lists(api) === 2);
    await settled(...MORE);
    t.equal(lists(api, 'nodes'), 1, 'the others are not concerned');
  }
});

const SAME_PAGE = '{"metadata":{"resourceVersion":"7","continue":"on-and-on"},"items":[]}';

t.test('a response that is not a complete list is abandoned, and the next one read', async (t) => {
  for (const [fault, times, kind, message] of [
    [{ kind: 'body', text: '<html>login</html>' }, 1, 'malformed', /not JSON/],
    [{ kind: 'body', text: '{"kind":"ServiceList"}' }, 1, 'malformed', /not a list/],
    [{ kind: 'body', text: '{"metadata":{},"items":[]}' }, 1, 'malformed', /resourceVersion/],
    [{ kind: 'body', text: SAME_PAGE }, 2, 'malformed', /continues where it did before/],
    [{ kind: 'stall', text: '{"kind":"ServiceList","it' }, 1, 'silent', /no data for 5 s/],
    [{ kind: 'drip' }, 1, 'silent', /not complete after 20 s/],
  ] as const) {
    const { api, store, failures, settled, advanceUntil } = await startKubeRig(t, {
      limits: { pauseTimeoutMs: 5000, listTimeoutMs: 20_000 },
      prepare(api) {
        fill(api);
        api.fault({ fault, resource: 'services', times });
      },
    });
    await until(() => lists(api) === times && api.watches().length === 2);
    await advanceUntil(() => failures.length === 1, fault.kind === 'drip' ? 1 : 250);
    t.match(failures, [{ kind, resource: 'services', error: { message } }]);
    t.notOk(store.synced);
    await advanceUntil(() => store.synced);
    await settled(...STATE);
    t.equal(lists(api), times + 1);
  }
});

t.test('watches that end at once cause no loop', async (t) => {
  const { api, clock, failures, advanceUntil } = await watchFilled(t);
  const end = clock.now() + 120_000;
  await advanceUntil(() => {
    for (const watch of api.watches()) watch.end();
    return clock.now() >= end;
  }, 100);
  t.ok(failures.every(({ kind }) => kind === 'short'));
  t.ok(failures.length < 40, `${failures.length} in two minutes`);
});

t.test('a quiet watch lasts as long as requested, and is reopened at once', async (t) => {
  const { api, clock, settled, failures, advanceUntil } = await watchFilled(t);
  const watching = collect(t, kubeWatching);
  api.cut();
  await advanceUntil(() => watching.length === 3);
  // A server without bookmarks says nothing at all for five minutes and more.
  clock.advance(470_000);
  t.equal(api.watches().length, 3);
  for (const watch of api.watches()) watch.end();
  await until(() => watching.length === 6);
  addApi(api);
  await settled(...MORE);
  t.equal(failures.length, 3);
  t.strictSame(
    watching.map(({ recovered }) => recovered).join(),
    'true,true,true,false,false,false',
  );
});

t.test('a silent watch is detected', async (t) => {
  const { api, settled, failures, advanceUntil } = await watchFilled(t);
  const received = collect(t, kubeReceived);
  api.bookmark();
  await until(() => received.length === 3);
  // Bookmarks have come, so silence means something.
  for (const watch of api.watches()) watch.muted = true;
  addApi(api);
  await advanceUntil(() => failures.length === 3, 10_000);
  t.match(failures[0], { kind: 'silent', error: { message: /no data for 150 s/ } });
  await advanceUntil(() => api.watches('services').some((watch) => !watch.muted));
  await settled(...MORE);
  t.equal(lists(api), 1);
});

t.test('a busy watch sets no timer for each event', async (t) => {
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
  const { api, store, watching } = await startKubeRig(t, { source: { clock } });
  await watching();
  for (let i = 0; i < 300; i += 1) {
    const before = store.revision;
    api.upsert('services', service('demo/web', `10.96.${i >> 8}.${i & 255}`));
    await until(() => store.revision > before);
  }
  t.ok(timers < 50, `${timers} timers`);
});
