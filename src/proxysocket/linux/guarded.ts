import { isBuiltin } from 'node:module';
import { systemClock, type Clock } from '../../util/clock.ts';
import type { Engine } from '../engine.ts';
import { CrashBreaker, YOUNG_RUN_MS } from './breaker.ts';
import { createLinuxEngine, type LinuxEngineOptions } from './engine.ts';
import { UnfitError } from './plane-worker.ts';

export interface GuardOptions extends LinuxEngineOptions {
  readonly breaker?: CrashBreaker;
  readonly clock?: Clock;
}

/**
 * The `linux` engine, unless it has died too often lately. Rejects with an UnfitError that names the
 * probe that has failed, of which the first is the memory of such deaths.
 */
export async function createGuardedLinuxEngine(options: GuardOptions = {}): Promise<Engine> {
  const { breaker = new CrashBreaker(), clock = systemClock, ...engineOptions } = options;
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
    engine = await createLinuxEngine(engineOptions);
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
    kind: engine.kind,
    apply: (changes) => engine.apply(changes),
    snapshot: (names) => engine.snapshot(names),
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
