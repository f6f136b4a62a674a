/** What scrapers get, by their headers, and that a large page stops no other work. */
import type { IncomingHttpHeaders } from 'node:http';
import { gunzipSync } from 'node:zlib';
import t, { type Test } from 'tap';
import { metricsPages, scrapeFormat, sharedPage } from '../../src/observe/pages.ts';
import { newCounters } from '../../src/proxysocket/counters.ts';
import { measuredPort, parseMetrics, startMetrics } from '../support/metrics-page.ts';

/** Metrics of service ports with some of everything. */
function busy(t: Test, count: number) {
  const connectSeconds = { counts: newCounters().connectSeconds.counts.map(() => 7), sum: 3 };
  const counters = { bytesIn: 5, held: 1, connectSeconds };
  const ports = Array.from({ length: count }, (_, connections) =>
    measuredPort(`team/service-${connections}:http`, { ...counters, connections }),
  );
  return startMetrics(t, ports).metrics;
}

/** Gets the page of such metrics. */
function served(t: Test) {
  const page = metricsPages(busy(t, 300), () => ({}))['/metrics'];
  return async (asked: IncomingHttpHeaders) => {
    const { type, headers = {}, body } = (await page?.answer(asked)) ?? {};
    if (typeof body !== 'function') return t.fail('no page') as never;
    return { type, headers, body: Buffer.concat(await body(new AbortController().signal)) };
  };
}

t.test('gzip for scrapers that accept it', async (t) => {
  const ask = served(t);
  const plain = await ask({});
  t.equal(plain.headers['content-encoding'], undefined);
  const packed = await ask({ 'accept-encoding': 'deflate, gzip;q=0.8' });
  t.match(packed.headers, { 'content-encoding': 'gzip', vary: 'accept, accept-encoding' });
  const same = parseMetrics(gunzipSync(packed.body).toString());
  const shown = { service: 'service-1', direction: 'in' };
  t.equal(same.value('kpng_userspace_bytes_total', shown), 5);
  t.same([...same.types], [...parseMetrics(plain.body.toString()).types]);
});

t.test('OpenMetrics for scrapers that prefer it: the same series, no exemplars', async (t) => {
  const ask = served(t);
  const plain = await ask({ accept: 'text/plain;version=0.0.4' });
  t.match(plain.type, /^text\/plain; version=0\.0\.4/);
  const page = parseMetrics(plain.body.toString());
  const { type, body } = await ask({
    accept:
      'application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,' +
      'text/plain;version=0.0.4;q=0.3,*/*;q=0.2',
  });
  t.equal(type, 'application/openmetrics-text; version=1.0.0; charset=utf-8');
  const open = parseMetrics(body.toString());
  t.notMatch(body.toString(), / # \{/, 'no exemplar');
  const names = ({ samples }: typeof page): Set<string> =>
    new Set(samples.map(({ name }) => name).filter((name) => !name.startsWith('nodejs_')));
  t.same(names(open), names(page));
  const full = [...open.types].map(([name, kind]) => (kind === 'counter' ? `${name}_total` : name));
  t.same(full, [...page.types.keys()], 'every counter ends in _total');
});

t.test('reads the headers', async (t) => {
  const chosen = (accept?: string, encoding?: string): string => {
    const format = scrapeFormat({ accept, 'accept-encoding': encoding });
    return `${format.text} ${format.encoding}`;
  };
  t.equal(chosen(), 'prometheus identity');
  t.equal(chosen('*/*', '*'), 'prometheus identity', 'a browser, or curl');
  const open = 'application/openmetrics-text';
  t.equal(chosen(`text/html, ${open}; charset=utf-8, text/plain`, 'GZIP'), 'openmetrics gzip');
  t.equal(chosen(`${open};version=1.0.0`, 'gzip;q=0, identity'), 'openmetrics identity');
  for (const accept of [`text/plain, ${open}`, `${open};version=2.0.0`, `${open};q=0`])
    t.equal(chosen(accept, 'gzip;q=0.0'), 'prometheus identity', accept);
  // A search that takes the square of their number would not come to an end.
  const blanks = ' '.repeat(4_000_000);
  t.equal(chosen(`a${blanks}b`, `gzip${blanks}b`), 'prometheus gzip');
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

t.test('one page at a time; clients that come meanwhile share the next', async (t) => {
  let begun = 0;
  let step = (): void => undefined;
  const page = sharedPage(async function* () {
    yield `page ${(begun += 1)}`;
    await new Promise<void>((resolve) => (step = resolve));
    yield ' all of it';
  });
  const turn = () => new Promise(setImmediate);
  const get = async (): Promise<string> => Buffer.concat(await page()).toString();
  const first = [get(), get()];
  await turn();
  const second = [get(), get(), get()];
  await turn();
  t.equal(begun, 1);
  step();
  t.strictSame(new Set(await Promise.all(first)), new Set(['page 1 all of it']));
  await turn();
  step();
  t.strictSame(new Set(await Promise.all(second)), new Set(['page 2 all of it']));
  t.equal(begun, 2);
});
