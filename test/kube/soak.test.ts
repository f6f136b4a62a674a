/**
 * Many events through source, store, API server and client, and a heap that stays flat. A few are enough for every day;
 * `npm run bench -- soak` sends a million of them.
 */
import t from 'tap';
import { burst, LAST, settle } from '../../bench/soak/churn.ts';
import { globalClient, KpngClient } from '../../src/client/client.ts';
import { parseTarget } from '../../src/client/target.ts';
import { openKubeSource } from '../../src/kube/source.ts';
import { feedLocalSink } from '../../src/store/local-feed.ts';
import { portOf, startApiRig } from '../support/api-rig.ts';
import { startFakeApi } from '../support/fake-api/server.ts';
import { usedMemory } from '../support/sockets.ts';
import { SELECTION } from '../support/kube-rig.ts';
import type { LocalChange, LocalView } from '../../src/store/local-view.ts';
import { until } from '../support/until.ts';

const EVENTS = 24_000;
const SERVICES = 200;
/** Between two looks at what has arrived. */
const BURST = 1000;

t.test('memory does not grow with the number of events', async (t) => {
  const api = await startFakeApi(t);
  settle(api, SERVICES);
  const source = await openKubeSource({
    config: { kubeconfig: '', server: api.url, env: {} },
    selection: SELECTION,
    userAgent: 'soak',
    backoff: { initialMs: 10, maxMs: 50, factor: 2, jitter: 0 },
  });
  const { cluster, server } = await startApiRig(t);
  const target = parseTarget(`127.0.0.1:${portOf(server)}`);
  const stop = new AbortController();
  const views = new Map<string, LocalView>();
  let changes = 0;
  const sinkOf = (name: string) => ({
    async sync({ view }: LocalChange) {
      views.set(name, view);
      changes += 1;
    },
  });
  const { hasher } = cluster.store;
  const remote = { source: globalClient({ target }), nodeName: 'node-a', hasher };
  const done = Promise.all([
    source.feed(cluster.store, stop.signal),
    new KpngClient({ target, nodeName: 'node-a' }).run(sinkOf('local'), stop.signal),
    feedLocalSink(remote, sinkOf('global'), stop.signal),
  ]);
  await until(() => views.size === 2 && api.watches().length === 3);
  const haveAll = (last: string): boolean =>
    [...views.values()].every((view) => view.get(LAST)?.service.ips?.clusterIPs?.v4[0] === last);

  const rounds = Math.ceil(EVENTS / BURST);
  const marks: number[] = [];
  for (let round = 1; round <= rounds; round += 1) {
    const { address: last } = burst(api, round, BURST, SERVICES);
    await until(() => haveAll(last));
    if (round % Math.ceil(rounds / 6) === 0) marks.push(usedMemory().heapUsed);
  }

  for (const { size } of views.values()) t.equal(size, SERVICES + 1);
  t.ok(changes >= 2 * rounds, `${changes} change sets of ${rounds * BURST} events`);
  const [, second = 0] = marks;
  // What is only on its way out, such as buffers of sockets, is gone after a while; what is kept is not.
  const grown = (): number => usedMemory().heapUsed - second;
  await until(() => grown() < 1_500_000, 30_000).catch(() => undefined);
  const growth = grown();
  const sizes = marks.map((mark) => `${(mark / 1e6).toFixed(1)} MB`).join(', ');
  t.ok(growth < 1_500_000, `grew by ${growth} bytes; ${sizes}`);
  stop.abort();
  await done;
});
