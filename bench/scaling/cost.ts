/**
 * Runs by itself: an engine with its workers and many service ports, in which nothing happens. Settings
 * `CostSettings`; prints `Cost`.
 */
import { readdirSync, readFileSync } from 'node:fs';
import type { Engine } from '../../src/proxysocket/engine.ts';
import { listenerFailed } from '../../src/proxysocket/events.ts';
import { createNodeEngine } from '../../src/proxysocket/node/engine.ts';
import type { EngineChange } from '../../src/proxysocket/spec.ts';
import { Pool } from '../../src/proxysocket/pool/pool.ts';
import { answer, settings } from '../support/worker.ts';

export interface CostSettings {
  readonly engine: 'node' | 'linux';
  readonly workers: number;
  readonly servicePorts: number;
}

/** Of the whole process, unless it is said to be of the main thread. */
export interface Cost extends CostSettings {
  /** Bytes in memory that are its own, without the service ports. */
  readonly emptyBytes: number;
  /** Descriptors that the service ports take, one TCP listener each. */
  readonly descriptors: number;
  /** CPU seconds of opening all of them: of all threads, and of the main one. */
  readonly applyCpu: number;
  readonly applyMainCpu: number;
  /** CPU seconds of the main thread: new endpoints for all of them, and one reading of all counters. */
  readonly endpointsMainCpu: number;
  readonly scrapeMainCpu: number;
}

const SCRAPES = 10;
const given = settings() as CostSettings;

function create(): Promise<Engine> | Engine {
  const { engine, workers } = given;
  return engine === 'linux' ? Pool.start({ workers }) : createNodeEngine();
}

function ownBytes(): number {
  const text = readFileSync('/proc/self/smaps_rollup', 'utf8');
  return Number(/^Anonymous:\s+(\d+) kB/m.exec(text)?.[1]) * 1024;
}

const descriptors = (): number => readdirSync('/proc/self/fd').length;
const main = (): number => {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1e6;
};
const all = (): number => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
};

/** What a function takes, by one of the two clocks. */
async function taken(clock: () => number, work: () => unknown): Promise<number> {
  const before = clock();
  await work();
  return clock() - before;
}

const endpoint = (last: number) => ({
  address: `10.1.0.${last}`,
  port: 80,
  internal: true,
  external: true,
});
const names = Array.from({ length: given.servicePorts }, (_, index) => `bench/service:${index}`);
const set = names.map((name): EngineChange => ({
  kind: 'set',
  spec: {
    name,
    protocol: 'TCP',
    listen: [{ address: '127.0.0.1', port: 0, traffic: 'internal' }],
    endpoints: [endpoint(1)],
    affinity: { kind: 'none' },
  },
}));

let failed = 0;
listenerFailed.subscribe(() => {
  failed += 1;
});
const engine = await create();
await engine.apply(set.slice(0, 1));
const [emptyBytes, emptyDescriptors] = [ownBytes(), descriptors()];
const mainBefore = main();
const applyCpu = await taken(all, () => engine.apply(set));
const applyMainCpu = main() - mainBefore;
const endpointsMainCpu = await taken(main, () =>
  engine.apply(
    names.map((name) => ({ kind: 'endpoints', name, endpoints: [endpoint(1), endpoint(2)] })),
  ),
);
const scrapes = await taken(main, () => {
  for (let scrape = 0; scrape < SCRAPES; scrape += 1) engine.snapshot();
});
const listening = engine
  .snapshot()
  .filter(({ listeners }) => listeners.every(({ state }) => state === 'listening')).length;
if (listening !== names.length) throw new Error(`only ${listening} listen`);
// A worker has its share of the descriptors; what it lacks would be missing in the figures.
if (failed > 0) throw new Error(`${failed} listeners of single workers could not be opened`);
answer({
  ...given,
  emptyBytes,
  descriptors: descriptors() - emptyDescriptors,
  applyCpu,
  applyMainCpu,
  endpointsMainCpu,
  scrapeMainCpu: scrapes / SCRAPES,
} satisfies Cost);
await engine.destroy();
