/** What scrapers get, by their headers, and that a large page stops no other work. */
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { buffer, text } from 'node:stream/consumers';
import { gunzipSync } from 'node:zlib';
import t, { type Test } from 'tap';
import { Health } from '../../src/observe/health.ts';
import { scrapeFormat } from '../../src/observe/scrape-format.ts';
import { startServers } from '../../src/observe/servers.ts';
import { newCounters } from '../../src/proxysocket/counters.ts';
import { captureLog } from '../support/captured-log.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { measuredPort, parseMetrics, startMetrics } from '../support/metrics-page.ts';
import { until } from '../support/until.ts';

/** Metrics of service ports with some of everything. */
function busy(t: Test, count: number) {
  const connectSeconds = { counts: newCounters().connectSeconds.counts.map(() => 7), sum: 3 };
  return startMetrics(
    t,
    Array.from({ length: count }, (_, n) =>
      measuredPort(`team/service-${n}:http`, {
        connections: n,
        bytesIn: 5,
        held: 1,
        connectSeconds,
      }),
    ),
  ).metrics;
}

/** A server of such metrics; asks it without a library that decodes. */
async function served(t: Test) {
  const { log, lines } = await captureLog();
  const server = startServers({
    metricsAddress: { host: '127.0.0.1', port: 0 },
    healthAddress: undefined,
    health: new Health(),
    metrics: busy(t, 300),
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
  t.equal(same.value('kpng_userspace_bytes_total', shown), 5);
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

t.test('a page of 10,000 service ports is made in pieces, with other work between', async (t) => {
  for (const format of ['prometheus', 'openmetrics'] as const) {
    const metrics = busy(t, 10_000);
    let turns = 0;
    const turn = (): void => {
      turns += 1;
      next = setImmediate(turn);
    };
    let next = setImmediate(turn);
    t.teardown(() => clearImmediate(next));
    let [bytes, pieces, before] = [0, 0, 0];
    for await (const piece of metrics.render(format)) {
      bytes += piece.length;
      if (piece.length > 40_000 || turns === before) t.fail(`a piece of ${piece.length} bytes`);
      before = turns;
      pieces += 1;
    }
    t.ok(bytes > 10_000_000, `${bytes} bytes`);
    // Those that read the service ports, and that find nothing to write about many of them, are turns too.
    t.ok(turns > pieces + 100, `${turns} turns for ${pieces} pieces`);
  }
});
