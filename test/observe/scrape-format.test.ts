/** What scrapers get, by their headers, and what a large page costs. */
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { buffer, text } from 'node:stream/consumers';
import { gunzipSync } from 'node:zlib';
import t, { type Test } from 'tap';
import { Turns } from '../../bench/support/turns.ts';
import type { Metrics } from '../../src/observe/metrics.ts';
import { Health } from '../../src/observe/health.ts';
import { inFormat, scrapeFormat, type ScrapeFormat } from '../../src/observe/scrape-format.ts';
import { startServers } from '../../src/observe/servers.ts';
import { newCounters } from '../../src/proxysocket/counters.ts';
import type { ServicePortSnapshot } from '../../src/proxysocket/engine.ts';
import { captureLog } from '../support/captured-log.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { measuredPort, parseMetrics, startMetrics } from '../support/metrics-page.ts';
import { until } from '../support/until.ts';

/** Metrics of busy service ports whose numbers have little in common, so that they compress no better than real ones. */
function busy(t: Test, count: number): Metrics {
  let seed = 1;
  const random = (below: number): number => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed % below;
  };
  const ports = Array.from({ length: count }, (_, n): ServicePortSnapshot => {
    const counters = newCounters();
    counters.connections = random(1e6);
    counters.active = random(100);
    counters.retries = 1 + random(1000);
    counters.bytesIn = random(2e9);
    counters.bytesOut = random(2e9);
    counters.connectSeconds.counts.forEach((_, index, counts) => (counts[index] = random(5000)));
    counters.connectSeconds.sum = random(2e9) / 1e6;
    return measuredPort(`team-${n % 50}/service-${n}:http`, counters);
  });
  const byName = new Map(ports.map((port) => [port.name, port]));
  // What an engine does to report its counters costs about that.
  const snapshot = (names: ReadonlySet<string> = new Set()) =>
    [...names].flatMap((name) => structuredClone(byName.get(name)) ?? []);
  return startMetrics(t, ports, { snapshot }).metrics;
}

/** A server of such metrics; asks it without a library that decodes. */
async function served(t: Test) {
  const { log, lines } = await captureLog();
  const server = startServers({
    metricsAddress: { host: '127.0.0.1', port: 0 },
    healthAddress: undefined,
    health: new Health(),
    metrics: busy(t, 3),
    log,
    clock: new FakeClock(),
  });
  t.teardown(() => server.close());
  await until(() => lines().length > 0);
  const url = `${String(lines()[0]?.['url'])}/metrics`;
  return async (headers: Record<string, string>): Promise<IncomingMessage> => {
    const [response] = (await once(get(url, { headers, agent: false }), 'response')) as [
      IncomingMessage,
    ];
    return response;
  };
}

t.test('gzip for scrapers that accept it', async (t) => {
  const ask = await served(t);
  const plain = await ask({});
  t.equal(plain.headers['content-encoding'], undefined);
  const page = parseMetrics(await text(plain));
  const packed = await ask({ 'accept-encoding': 'deflate, gzip;q=0.8' });
  t.match(packed.headers, { 'content-encoding': 'gzip', vary: 'accept, accept-encoding' });
  const same = parseMetrics(gunzipSync(await buffer(packed)).toString());
  const shown = { service: 'service-1', direction: 'in' };
  const name = 'kpng_userspace_bytes_total';
  t.ok(page.value(name, shown));
  t.equal(same.value(name, shown), page.value(name, shown));
  t.same([...same.types], [...page.types]);
  const refused = await ask({ 'accept-encoding': 'gzip;q=0, identity' });
  t.equal(refused.headers['content-encoding'], undefined);
});

t.test('OpenMetrics for scrapers that prefer it: the same series, no exemplars', async (t) => {
  const ask = await served(t);
  const plain = await ask({ accept: 'text/plain;version=0.0.4' });
  t.match(plain.headers['content-type'], /^text\/plain; version=0\.0\.4/);
  const page = parseMetrics(await text(plain));
  const response = await ask({
    accept:
      'application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,' +
      'text/plain;version=0.0.4;q=0.3,*/*;q=0.2',
  });
  const type = 'application/openmetrics-text; version=1.0.0; charset=utf-8';
  t.equal(response.headers['content-type'], type);
  const written = await text(response);
  const open = parseMetrics(written);
  t.notMatch(written, / # \{/, 'no exemplar');
  const names = ({ samples }: typeof page): Set<string> =>
    new Set(samples.map(({ name }) => name).filter((name) => !name.startsWith('nodejs_')));
  t.same(names(open), names(page));
  t.same(
    [...open.types].map(([name, kind]) => (kind === 'counter' ? `${name}_total` : name)),
    [...page.types.keys()],
    'every counter ends in _total',
  );
  const again = parseMetrics(await text(await ask({})));
  t.same(names(again), names(page), 'the other format is as before');
});

t.test('reads the headers', async (t) => {
  const chosen = (accept?: string, encoding?: string): string => {
    const format = scrapeFormat({ accept, 'accept-encoding': encoding });
    return `${format.text} ${format.encoding}`;
  };
  t.equal(chosen(), 'prometheus identity');
  t.equal(chosen('*/*', '*'), 'prometheus identity', 'a browser, or curl');
  const open = 'application/openmetrics-text';
  t.equal(chosen(open, 'GZIP'), 'openmetrics gzip');
  for (const more of ['version=2.0.0', 'q=0.2,text/plain;q=0.3', 'q=0', 'q=x'])
    t.equal(chosen(`${open};${more}`, 'gzip;q=x'), 'prometheus identity', more);
});

/** How long others wait while the metrics of many service ports are read. */

const SERVICE_PORTS = 10_000;
const TARGET_MS = 20;
/** Collecting garbage may fall into one of them. */
const ATTEMPTS = 4;
const MAX_WIRE_BYTES = 4_000_000;

const old = typeof (process as { threadCpuUsage?: unknown }).threadCpuUsage !== 'function';

for (const format of [
  { text: 'prometheus', encoding: 'identity' },
  { text: 'openmetrics', encoding: 'gzip' },
] satisfies ScrapeFormat[]) {
  t.test(
    `a scrape of ${SERVICE_PORTS} busy service ports (${format.encoding}) keeps the thread for less than ${TARGET_MS} ms`,
    { skip: old && 'this Node cannot report how long a thread works' },
    async (t) => {
      const metrics = busy(t, SERVICE_PORTS);
      const turns = new Turns();
      t.teardown(() => turns.stop());
      const worked: number[] = [];
      for (let n = 0; n < ATTEMPTS; n += 1) {
        turns.reset();
        let bytes = 0;
        for await (const piece of inFormat(metrics.render(), format)) bytes += piece.length;
        await turns.one();
        if (format.encoding === 'gzip') t.ok(bytes < MAX_WIRE_BYTES, `${bytes} bytes on the wire`);
        else t.ok(bytes > 10_000_000, `${bytes} bytes`);
        worked.push(Number(/at work for at most (\d+)/.exec(turns.longest())?.[1]));
      }
      t.ok(Math.min(...worked) < TARGET_MS, `at work for ${worked.join(', ')} ms`);
    },
  );
}
