/**
 * Runs by itself: an engine with one TCP and one UDP service port, which reports what it has done so far.
 * Settings are a `CountedEngine`; requests have no fields, answers are `Counts`.
 */
import { readFileSync } from 'node:fs';
import { performance } from 'node:perf_hooks';
import { getHeapStatistics } from 'node:v8';
import { processDescriptorLimit } from '../../src/proxysocket/core/descriptors.ts';
import type { Engine } from '../../src/proxysocket/engine.ts';
import { DEFAULT_LIMITS } from '../../src/proxysocket/limits.ts';
import { createDataPlane } from '../../src/proxysocket/linux/engine.ts';
import { Loop } from '../../src/proxysocket/linux/loop.ts';
import {
  importFfi,
  openLibrary,
  SIGNATURES,
  type Library,
} from '../../src/proxysocket/linux/sys/library.ts';
import { Sys } from '../../src/proxysocket/linux/sys/sys.ts';
import { createNodeEngine } from '../../src/proxysocket/node/engine.ts';
import type { EngineChange, Protocol } from '../../src/proxysocket/spec.ts';
import { systemClock } from '../../src/util/clock.ts';
import { answerRequests, settings } from '../support/dialogue.ts';

type Calls = Record<string, number>;

export interface CountedEngine {
  readonly engine: 'node' | 'linux';
  /** Count calls of C functions, which costs memory: only of the `linux` engine. */
  readonly calls: boolean;
  readonly endpoint: { readonly tcp: number; readonly udp: number };
}

export interface Counts {
  readonly ports: { readonly tcp: number; readonly udp: number };
  /** Turns of the event loop that had an event. */
  readonly turns: number;
  /** System calls by name; of the `node` engine only `read` and `write`, of every kind and in all. */
  readonly calls: Calls;
  /** On the heap of JavaScript, since the start. Bytes. */
  readonly allocated: number;
}

/** How long the loop of the `linux` engine waits before Node's has a turn. Milliseconds. */
const WAIT_MS = 2;

const given = settings() as CountedEngine;
const { engine, count } = given.engine === 'node' ? nodeEngine() : await linuxEngine();
await engine.apply([service('TCP', given.endpoint.tcp), service('UDP', given.endpoint.udp)]);
const ports = { tcp: boundPort('TCP'), udp: boundPort('UDP') };

answerRequests((): Counts => ({
  ports,
  ...count(),
  allocated: getHeapStatistics().total_allocated_bytes ?? 0,
}));

function service(protocol: Protocol, port: number): EngineChange {
  return {
    kind: 'set',
    spec: {
      name: `bench/counted:${protocol}`,
      protocol,
      listen: [{ address: '127.0.0.1', port: 0, traffic: 'internal' }],
      endpoints: [{ address: '127.0.0.1', port, internal: true, external: true }],
      affinity: { kind: 'none' },
    },
  };
}

function boundPort(protocol: Protocol): number {
  const found = engine.snapshot().find((each) => each.protocol === protocol)?.listeners[0];
  if (found?.state === 'listening') return found.boundPort;
  throw new Error(`${protocol}: ${JSON.stringify(found)}`);
}

interface Counted {
  readonly engine: Engine;
  readonly count: () => Pick<Counts, 'turns' | 'calls'>;
}

function nodeEngine(): Counted {
  return {
    engine: createNodeEngine({}),
    count() {
      const io = readFileSync('/proc/self/io', 'utf8');
      const field = (name: string): number =>
        Number(new RegExp(`^${name}: (\\d+)`, 'm').exec(io)?.[1]);
      const { loopCount } = performance.nodeTiming.uvMetricsInfo;
      return { turns: loopCount, calls: { read: field('syscr'), write: field('syscw') } };
    },
  };
}

/** The sockets of the engine in this thread, whose loop takes turns with that of Node. */
async function linuxEngine(): Promise<Counted> {
  const plain = openLibrary(await importFfi());
  const { library, calls } = given.calls ? countedLibrary(plain) : { library: plain, calls: {} };
  const loop = new Loop(new Sys(library));
  let turns = 0;
  const turn = (): void => {
    if (loop.turn(WAIT_MS) > 0) turns += 1;
    setImmediate(turn);
  };
  setImmediate(turn);
  const engine = createDataPlane(loop, {
    limits: DEFAULT_LIMITS,
    clock: systemClock,
    random: Math.random,
    descriptorLimit: processDescriptorLimit(),
  });
  return { engine, count: () => ({ turns, calls: { ...calls, epoll_wait: turns } }) };
}

/** The same C functions, each call of which is counted by its name. */
function countedLibrary(library: Library): { library: Library; calls: Calls } {
  const calls: Calls = {};
  const functions = Object.keys(SIGNATURES).map((name) => {
    const original = library.c[name as keyof Library['c']] as (...args: unknown[]) => unknown;
    calls[name] = 0;
    const counted = (...args: unknown[]): unknown => {
      calls[name] = (calls[name] ?? 0) + 1;
      return original(...args);
    };
    return [name, counted];
  });
  return {
    library: { ...library, c: Object.fromEntries(functions) as Library['c'] },
    calls,
  };
}
