import { isBuiltin } from 'node:module';
import { systemClock, type Clock } from '../../util/clock.ts';
import type { Engine } from '../engine.ts';
import { CrashBreaker, YOUNG_RUN_MS } from './breaker.ts';
import { createLinuxWorkers } from '../workers/create.ts';
import type { LinuxEngineOptions } from './engine.ts';
import { UnfitError } from '../threads/plane-worker.ts';

export interface GuardOptions extends LinuxEngineOptions {
  readonly breaker?: CrashBreaker;
  readonly clock?: Clock;
  /** Default: 1. */
  readonly workers?: number;
  /** Aborted when the process is asked to end: whoever asks may also end it by force then. */
  readonly stopping?: AbortSignal;
  /** Told when the engine has died too often lately, and is tried all the same. Absent: it is not. */
  readonly onDeaths?: (deaths: number, path: string) => void;
}

/**
 * The `linux` engine, unless it has died too often lately. Rejects with an UnfitError that names the
 * probe that has failed, of which the first is the memory of such deaths.
 */
export async function createGuardedLinuxEngine(
  options: GuardOptions = {},
): Promise<Required<Engine>> {
  const {
    breaker = new CrashBreaker(),
    clock = systemClock,
    workers = 1,
    stopping,
    onDeaths,
    ...engineOptions
  } = options;
  // What a worker would find out, too, at the price of starting one.
  if (process.platform !== 'linux') throw new UnfitError('platform', `this is ${process.platform}`);
  if (!isBuiltin('node:ffi')) throw new UnfitError('platform', 'this Node has no node:ffi');
  if (breaker.isOpen()) {
    const [deaths, path] = [breaker.deaths(), breaker.path];
    if (onDeaths === undefined) {
      throw new UnfitError('crash-loop', `the last ${deaths} runs with it died young (${path})`);
    }
    onDeaths(deaths, path);
  }
  // Before the probes: they may be what it dies of.
  const ended = beginRun(breaker, clock, stopping);
  let engine: Required<Engine>;
  try {
    engine = await createLinuxWorkers(workers, engineOptions);
  } catch (error) {
    ended();
    throw error;
  }
  return {
    get kind() {
      return engine.kind;
    },
    apply: (changes) => engine.apply(changes),
    setLimits: async (change) => engine.setLimits(change),
    snapshot: (names) => engine.snapshot(names),
    names: () => engine.names(),
    activity: () => engine.activity(),
    inspect: (query) => engine.inspect(query),
    close(heir) {
      ended();
      return engine.close(heir);
    },
    destroy() {
      ended();
      return engine.destroy();
    },
  };
}

/**
 * Notes that this run has begun, until it has lasted, or is to end, or the process ends by itself. Returns
 * what tells that it is to end. Idempotent.
 */
function beginRun(breaker: CrashBreaker, clock: Clock, stopping?: AbortSignal): () => void {
  breaker.begin();
  const over = (how: 'lasted' | 'end'): void => {
    timer.cancel();
    process.off('exit', end);
    stopping?.removeEventListener('abort', end);
    breaker[how]();
  };
  let isNoted = true;
  const end = (): void => {
    if (isNoted) over('end');
    isNoted = false;
  };
  const timer = clock.setTimer(YOUNG_RUN_MS, () => {
    isNoted = false;
    over('lasted');
  });
  // With an error that nobody has caught, or because a second signal came: system calls are not to blame.
  process.once('exit', end);
  stopping?.addEventListener('abort', end, { once: true });
  return end;
}
