/**
 * Many events, and a heap that stays flat. A few are enough for every day; `npm run bench -- soak` sends a
 * million of them, through the API server and its clients as well.
 */
import t from 'tap';
import { burst, LAST, settle } from '../../bench/soak/churn.ts';
import { loadHasher } from '../../src/api/hash.ts';
import { KubeSource } from '../../src/kube/source.ts';
import { feedLocalSink } from '../../src/store/local-feed.ts';
import type { LocalView } from '../../src/store/local-view.ts';
import { startFakeApi } from '../support/fake-api/server.ts';
import { usedMemory } from '../support/sockets.ts';
import { SELECTION } from '../support/kube-rig.ts';
import { until } from '../support/until.ts';

const EVENTS = 24_000;
const SERVICES = 200;
/** Between two looks at what has arrived. */
const BURST = 1000;

t.test('memory does not grow with the number of events', async (t) => {
  const api = await startFakeApi(t);
  settle(api, SERVICES);
  const source = await KubeSource.open({
    config: { kubeconfig: '', server: api.url, env: {} },
    selection: SELECTION,
    userAgent: 'soak',
    backoff: { initialMs: 10, maxMs: 50, factor: 2, jitter: 0 },
  });
  const stop = new AbortController();
  let view: LocalView | undefined;
  let changes = 0;
  const sink = {
    sync(change: { view: LocalView }) {
      view = change.view;
      changes += 1;
      return Promise.resolve();
    },
  };
  const hasher = await loadHasher();
  const done = feedLocalSink({ source, nodeName: 'node-a', hasher }, sink, stop.signal);
  await until(() => view !== undefined && api.watches().length === 3);

  const rounds = Math.ceil(EVENTS / BURST);
  const marks: number[] = [];
  for (let round = 1; round <= rounds; round += 1) {
    const { address: last } = burst(api, round, BURST, SERVICES);
    await until(() => view?.get(LAST)?.service.ips?.clusterIPs?.v4[0] === last, 20_000);
    if (round % Math.ceil(rounds / 6) === 0) marks.push(usedMemory().heapUsed);
  }

  t.equal(view?.size, SERVICES + 1);
  t.ok(changes >= rounds, `${changes} change sets of ${rounds * BURST} events`);
  const [, second = 0] = marks;
  // What is only on its way out, such as buffers of sockets, is gone after a while; what is kept is not.
  const grown = (): number => usedMemory().heapUsed - second;
  await until(() => grown() < 1_500_000, 5000).catch(() => undefined);
  const growth = grown();
  const sizes = marks.map((mark) => `${(mark / 1e6).toFixed(1)} MB`).join(', ');
  t.ok(growth < 1_500_000, `grew by ${growth} bytes; ${sizes}`);
  stop.abort();
  await done;
});
