/** A server that goes away, answers that are none, and watches and lists that end, stay quiet or hang. */
import type { ServerResponse } from 'node:http';
import t from 'tap';
import { kubeReceived, kubeWatching } from '../../src/kube/events.ts';
import { sourceConnected, sourceDisconnected } from '../../src/store/events.ts';
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
    const malformed = { kind: 'malformed', relist: true, routine: false, resource: 'services' };
    t.match(failures, [malformed], line);
    addApi(api);
    await advanceUntil(() => lists(api) === 2);
    await settled(...MORE);
    t.equal(lists(api, 'nodes'), 1, 'the others are not concerned');
  }
});

const SAME_PAGE = '{"metadata":{"resourceVersion":"7","continue":"on-and-on"},"items":[]}';

/** An answer that begins and never ends. */
const stall = (response: ServerResponse) => void response.write('{"kind":"ServiceList","it');
/** The same, with a space now and then. */
const drip = (response: ServerResponse): void => {
  const timer = setInterval(() => response.write(' '), 1);
  response.on('close', () => clearInterval(timer));
};

t.test('a response that is not a complete list is abandoned, and the next one read', async (t) => {
  for (const [fault, times, kind, message] of [
    ['<html>login</html>', 1, 'malformed', /not JSON/],
    ['{"kind":"ServiceList"}', 1, 'malformed', /not a list/],
    ['{"metadata":{},"items":[]}', 1, 'malformed', /resourceVersion/],
    [SAME_PAGE, 2, 'malformed', /continues where it did before/],
    [stall, 1, 'silent', /no data for 5 s/],
    [drip, 1, 'silent', /not complete after 20 s/],
  ] as const) {
    const { api, store, failures, settled, advanceUntil } = await startKubeRig(t, {
      limits: { pauseTimeoutMs: 5000, listTimeoutMs: 20_000 },
      prepare(api) {
        fill(api);
        api.fault(fault, { resource: 'services', times });
      },
    });
    await until(() => lists(api) === times && api.watches().length === 2);
    await advanceUntil(() => failures.length === 1, fault === drip ? 1 : 250);
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
  const recoveries = watching.map(({ recovered }) => recovered);
  t.strictSame(recoveries, [true, true, true, false, false, false]);
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

t.test('server unreachable: the state stays until the server is back', async (t) => {
  const lost = collect(t, sourceDisconnected);
  const connected = collect(t, sourceConnected);
  const { api, clock, settled, failures, advanceUntil, store } = await watchFilled(t);
  await api.stop();
  await until(() => failures.length === 3);
  t.ok(failures.every(({ kind }) => kind === 'cut'));
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
});

t.test('while the server is unreachable only one of the three retries', async (t) => {
  const { api, clock, failures, advanceUntil } = await watchFilled(t);
  // It takes connections but says nothing, so that an attempt lasts.
  api.fault(() => {});
  api.cut();
  await until(() => failures.length === 3);
  clock.advance(2000);
  const asked = api.requests.length;
  await until(() => api.requests.length === asked + 3);
  // None of the three was answered in time: the server is unreachable.
  clock.advance(30_000);
  await until(() => failures.length === 6);
  t.match(failures.at(-1)?.error.message, /no answer within 30 s/);
  const waits = failures.slice(3).map(({ retryInMs }) => retryInMs);
  t.strictSame(waits, [1000, 1000, 1000], 'they wait for the same attempt');
  const counts: number[] = [];
  const resources: unknown[] = [];
  for (let i = 0; i < 4; i += 1) {
    const so = api.requests.length;
    const failed = failures.length;
    await advanceUntil(() => api.requests.length > so, 500);
    await advanceUntil(() => failures.length > failed, 5000);
    counts.push(api.requests.length - so);
    resources.push(failures.at(-1)?.resource);
  }
  t.strictSame(counts, [1, 1, 1, 1]);
  t.equal(new Set(resources.slice(0, 3)).size, 3, 'they take turns');
  t.equal(resources[3], resources[0]);
});
