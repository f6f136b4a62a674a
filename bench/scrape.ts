/** `npm run bench -- scrape`: how long traffic waits while metrics are read. */
import { isBuiltin } from 'node:module';
import { Worker } from 'node:worker_threads';
import { createMetrics, type Metrics } from '../src/observe/metrics.ts';
import { answerTo, metricsPages } from '../src/observe/pages.ts';
import { startHttpServer, type HttpServer } from '../src/util/http-server.ts';
import { newCounters, type ServicePortCounters } from '../src/proxysocket/counters.ts';
import type { Engine } from '../src/proxysocket/engine.ts';
import { NOTHING } from '../src/proxysocket/inspect.ts';
import { DEFAULT_LIMITS } from '../src/proxysocket/limits.ts';
import type { EngineChange } from '../src/proxysocket/spec.ts';
import { systemClock } from '../src/util/clock.ts';
import { formatHostPort } from '../src/util/host-port.ts';
import { Turns } from './support/turns.ts';

interface ScrapePlan {
  readonly servicePorts: number;
  readonly scrapes: number;
}

const PLAN: ScrapePlan = { servicePorts: 10_000, scrapes: 10 };
/** No other work should wait for longer than this. Milliseconds. */
const TARGET_MS = 20;

/** Every metric has a value that is not zero, so that the page is as large as it gets. */
const BUSY: ServicePortCounters = {
  ...newCounters(),
  connections: 12_345,
  active: 67,
  bytesIn: 1_234_567_890,
  bytesOut: 9_876_543_210,
  retries: 1,
  rejectedNoEndpoint: 2,
  rejectedConnectFailed: 3,
  rejectedHoldTimeout: 1,
  held: 1,
  heldTotal: 2,
  halfCloseTimeouts: 4,
  connectErrors: { refused: 1, timeout: 2, unreachable: 3, reset: 4, loop: 5, limit: 6, other: 7 },
  connectSeconds: { counts: newCounters().connectSeconds.counts.map((_, n) => n + 1), sum: 1.5 },
};

/** Measures each engine that works here. False when other work has to wait for too long. */
export async function runScrape(
  print: (line: string) => void,
  plan: ScrapePlan = PLAN,
): Promise<boolean> {
  const { servicePorts, scrapes } = plan;
  print(
    `${servicePorts.toLocaleString('en')} service ports, ${scrapes} scrapes, all metrics in use\n`,
  );
  let good = true;
  for (const create of [nodeEngine, linuxEngine]) {
    const engine = await create();
    if (engine === undefined) continue;
    const { text, mostWorkMs } = await measure(engine, plan);
    print(`engine ${engine.kind.padEnd(6)} ${text}`);
    good &&= mostWorkMs < TARGET_MS;
  }
  if (!good) print(`FAIL  others had to wait for more than ${TARGET_MS} ms`);
  return good;
}

async function nodeEngine(): Promise<Engine> {
  const { createNodeEngine } = await import('../src/proxysocket/node/engine.ts');
  return createNodeEngine();
}

async function linuxEngine(): Promise<Engine | undefined> {
  if (!isBuiltin('node:ffi')) return undefined;
  try {
    const { Pool } = await import('../src/proxysocket/pool/pool.ts');
    return await Pool.start({ limits: DEFAULT_LIMITS });
  } catch {
    // Most systems cannot have it; then there is nothing to measure.
    return undefined;
  }
}

/** What the scrapes cost other users of the thread: in words, and the most that it was at work without a pause. */
async function measure(engine: Engine, plan: ScrapePlan) {
  await engine.apply(changes(plan.servicePorts));
  const metrics = createMetrics({ version: 'bench' });
  metrics.observe({
    engine: {
      kind: engine.kind,
      snapshot: (names) =>
        engine.snapshot(names).map((each) => Object.assign({}, each, { counters: BUSY })),
      names: () => engine.names?.() ?? [],
      inspect: async () => NOTHING,
    },
    portal: 'none',
    limits: DEFAULT_LIMITS,
    problems: () => [],
  });
  const { server, url } = await serve(metrics);
  const turns = new Turns();
  try {
    // The first ones are slow, as nothing is compiled yet.
    await scrape(url, 3);
    turns.reset();
    const { bytes, times } = await scrape(url, plan.scrapes);
    await turns.one();
    const medianMs = times.toSorted((a, b) => a - b)[times.length >> 1] ?? Number.NaN;
    const size = `${(bytes / 1e6).toFixed(1)} MB in ${medianMs.toFixed(0)} ms (median)`;
    return { text: `${size}, longest turn ${turns.longest()}`, mostWorkMs: turns.mostWork };
  } finally {
    turns.stop();
    metrics.close();
    await server.close();
    await engine.destroy();
  }
}

function changes(count: number): EngineChange[] {
  return Array.from({ length: count }, (_, n): EngineChange => ({
    kind: 'set',
    spec: {
      name: `team-${n % 50}/service-${n}:http`,
      protocol: 'TCP',
      listen: [{ address: '127.0.0.1', port: 0, traffic: 'internal' }],
      endpoints: [1, 2].map((host) => {
        return { address: `127.78.2.${host}`, port: 8080, internal: true, external: true };
      }),
      affinity: { kind: 'none' },
    },
  }));
}

function serve(metrics: Metrics): Promise<{ server: HttpServer; url: string }> {
  const pages = metricsPages(metrics, () => ({}));
  return new Promise((resolve, reject) => {
    const server = startHttpServer({
      address: { host: '127.0.0.1', port: 0 },
      clock: systemClock,
      answer: ({ path }) => answerTo(path, {}, pages),
      onListening: (address) =>
        resolve({ server, url: `http://${formatHostPort(address)}/metrics` }),
      onBindFailed: reject,
      onAnswerFailed: (_, error) => reject(error),
    });
  });
}

interface Scraped {
  readonly bytes: number;
  /** Milliseconds. */
  readonly times: readonly number[];
}

/** In a thread of its own: what a client does is nothing that the proxy has to wait for. */
const CLIENT = `
  const { parentPort, workerData } = require('node:worker_threads');
  (async () => {
    const times = [];
    let bytes = 0;
    for (let n = 0; n < workerData.count; n += 1) {
      const start = performance.now();
      bytes = (await (await fetch(workerData.url)).arrayBuffer()).byteLength;
      times.push(performance.now() - start);
    }
    parentPort.postMessage({ bytes, times });
  })();
`;

function scrape(url: string, count: number): Promise<Scraped> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(CLIENT, { eval: true, workerData: { url, count } });
    worker.once('message', resolve);
    worker.once('error', reject);
  });
}
