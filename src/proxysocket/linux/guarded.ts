import { isBuiltin } from 'node:module';
import { systemClock, type Clock } from '../../util/clock.ts';
import type { Engine } from '../engine.ts';
import { NOTHING } from '../inspect.ts';
import { CrashBreaker, YOUNG_RUN_MS } from './breaker.ts';
import { createWorkers } from '../workers/create.ts';
import type { LinuxEngineOptions } from './engine.ts';
import { UnfitError } from './plane-worker.ts';

export interface GuardOptions extends LinuxEngineOptions {
  readonly breaker?: CrashBreaker;
  readonly clock?: Clock;
  /** Default: 1. */
  readonly workers?: number;
}

/**
 * The `linux` engine, unless it has died too often lately. Rejects with an UnfitError that names the
 * probe that has failed, of which the first is the memory of such deaths.
 */
export async function createGuardedLinuxEngine(options: GuardOptions = {}): Promise<Engine> {
  const {
    breaker = new CrashBreaker(),
    clock = systemClock,
    workers = 1,
    ...engineOptions
  } = options;
  // What a worker would find out, too, at the price of starting one.
  if (process.platform !== 'linux') throw new UnfitError('platform', `this is ${process.platform}`);
  if (!isBuiltin('node:ffi')) throw new UnfitError('platform', 'this Node has no node:ffi');
  if (breaker.isOpen()) {
    throw new UnfitError(
      'crash-loop',
      `the last ${breaker.deaths()} runs with it died young (${breaker.path})`,
    );
  }
  // Before the probes: they may be what it dies of.
  breaker.begin();
  let engine: Engine;
  try {
    engine = await createWorkers(workers, engineOptions);
  } catch (error) {
    breaker.end();
    throw error;
  }
  let isYoung = true;
  const timer = clock.setTimer(YOUNG_RUN_MS, () => {
    isYoung = false;
    breaker.lasted();
  });
  const ended = (): void => {
    timer.cancel();
    if (isYoung) breaker.end();
  };
  return {
    get kind() {
      return engine.kind;
    },
    apply: (changes) => engine.apply(changes),
    snapshot: (names) => engine.snapshot(names),
    names: () => engine.names?.(),
    inspect: async (query) => (await engine.inspect?.(query)) ?? NOTHING,
    async close() {
      await engine.close();
      ended();
    },
    async destroy() {
      await engine.destroy();
      ended();
    },
  };
}
