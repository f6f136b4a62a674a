/**
 * Many events, and a heap that stays flat. A few are enough for every day;
 * `KPNG_SOAK_EVENTS=1000000 npx tap --timeout=0 test/kube/soak.test.ts` is the whole of it.
 */
import t from 'tap';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { loadHasher } from '../../src/api/hash.ts';
import { KubeSource } from '../../src/kube/source.ts';
import { feedLocalSink } from '../../src/store/local-feed.ts';
import type { LocalView } from '../../src/store/local-view.ts';
import { endpoint, node, service, slice } from '../support/fake-api/objects.ts';
import { startFakeApi } from '../support/fake-api/server.ts';
import { SELECTION } from '../support/kube-rig.ts';
import { until } from '../support/until.ts';

const EVENTS = Number(process.env['KPNG_SOAK_EVENTS'] ?? 24_000);
const SERVICES = 200;
/** Between two looks at what has arrived. */
const BURST = 1000;

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/** Bytes in use after a full collection. */
function used(): number {
  collect();
  return process.memoryUsage().heapUsed;
}

t.test('memory does not grow with the number of events', async (t) => {
  const api = await startFakeApi(t);
  for (let i = 0; i < SERVICES; i += 1) {
    api.upsert('services', service(`demo/s${i}`, `10.96.${i >> 8}.${i & 255}`));
  }
  api.upsert('nodes', node('node-a', 'north'));
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
    for (let i = 0; i < BURST - 1; i += 1) {
      const n = round * BURST + i;
      const key = `demo/s${n % SERVICES}`;
      const address = `10.${(n >> 16) & 255}.${(n >> 8) & 255}.${n & 255}`;
      // Endpoints come, move and go; services and nodes change now and then.
      if (n % 10 === 0) api.delete('endpointslices', `${key}-x`);
      else if (n % 50 === 1) api.upsert('services', service(key, `10.97.${n & 15}.${n & 255}`));
      else if (n % 50 === 2) api.upsert('nodes', node(`node-${n & 7}`, `zone-${round & 1}`));
      else
        api.upsert('endpointslices', slice(`${key}-x`, [endpoint(address), endpoint('10.0.0.1')]));
    }
    // Some go over another connection, or over another list.
    if (round % 8 === 3) api.cut();
    if (round % 8 === 7) {
      api.compact();
      api.cut();
    }
    const last = `10.99.${(round >> 8) & 255}.${round & 255}`;
    api.upsert('services', service('demo/last', last));
    await until(
      () => view?.get('demo/last')?.service.ips?.clusterIPs?.v4[0] === last,
      EVENTS > 100_000 ? 60_000 : 20_000,
    );
    // The server's own memory of what it was asked is none of ours.
    api.requests.length = 0;
    if (round % Math.ceil(rounds / 6) === 0) marks.push(used());
  }

  t.equal(view?.size, SERVICES + 1);
  t.ok(changes >= rounds, `${changes} change sets of ${rounds * BURST} events`);
  const [, second = 0] = marks;
  // What is only on its way out, such as buffers of sockets, is gone after a while; what is kept is not.
  const grown = (): number => used() - second;
  await until(() => grown() < 1_500_000, 5000).catch(() => undefined);
  const growth = grown();
  const sizes = marks.map((mark) => `${(mark / 1e6).toFixed(1)} MB`).join(', ');
  t.ok(growth < 1_500_000, `grew by ${growth} bytes; ${sizes}`);
  if (EVENTS > 100_000) t.comment(`${rounds * BURST} events, heap ${sizes}`);
  stop.abort();
  await done;
});
