import type { Engine } from '../engine.ts';
import { DEFAULT_LIMITS } from '../limits.ts';
import { createLinuxEngine, LINUX_THREAD, type LinuxEngineOptions } from '../linux/engine.ts';
import { NODE_THREAD } from '../node-worker/thread.ts';
import { ThreadEngine, type ThreadEngineOptions } from '../threads/engine.ts';
import { Deaths } from '../threads/successor.ts';
import { shareOfLimits } from './share.ts';
import { SharedEngine } from './shared-engine.ts';

/**
 * Several `linux` engines that share everything they listen on, and each limit by equal parts; with one
 * worker just that engine. Rejects as `createLinuxEngine` does, and then nothing is left.
 *
 * When threads of theirs have died too often, whichever they were, each that dies is replaced by one of the
 * `node` engine, with the same sockets.
 */
export async function createLinuxWorkers(
  workers: number,
  options: LinuxEngineOptions = {},
): Promise<Required<Engine>> {
  if (workers === 1) return createLinuxEngine(options);
  // An engine that takes over alone could not listen where the others do.
  const { successor: _, ...others } = options;
  return createShared(workers, {
    ...LINUX_THREAD,
    next: NODE_THREAD,
    deaths: new Deaths(),
    ...others,
  });
}

/**
 * Several `node` engines, each in a thread, that share everything in the same way. Rejects with an UnfitError
 * where that cannot be, and then nothing is left.
 */
export async function createNodeWorkers(
  workers: number,
  options: Omit<ThreadEngineOptions, 'kind' | 'module'> & { readonly module?: URL } = {},
): Promise<Required<Engine>> {
  return createShared(workers, { ...NODE_THREAD, ...options });
}

async function createShared(
  workers: number,
  options: ThreadEngineOptions,
): Promise<Required<Engine>> {
  const limits = shareOfLimits({ ...DEFAULT_LIMITS, ...options.limits }, workers);
  const engines = Array.from(
    { length: workers },
    () => new ThreadEngine({ ...options, limits, engines: workers }),
  );
  const started = await Promise.allSettled(engines.map((engine) => engine.start()));
  const failed = started.find((each) => each.status === 'rejected');
  if (failed === undefined) {
    return new SharedEngine(engines, {
      isSteered: engines.every(({ steers }) => steers),
      byAddress: options.kind === 'node',
    });
  }
  const running = engines.filter((_, index) => started[index]?.status === 'fulfilled');
  await Promise.all(running.map((engine) => engine.destroy()));
  throw failed.reason;
}
