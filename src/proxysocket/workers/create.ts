import type { Engine } from '../engine.ts';
import { DEFAULT_LIMITS, type EngineLimits } from '../limits.ts';
import { createLinuxEngine, type LinuxEngineOptions } from '../linux/engine.ts';
import { SharedEngine } from './shared-engine.ts';

/**
 * Several `linux` engines that share everything they listen on, and each limit by equal parts; with one
 * worker just that engine. Rejects as `createLinuxEngine` does, and then nothing is left.
 */
export async function createWorkers(
  workers: number,
  options: LinuxEngineOptions = {},
): Promise<Engine> {
  if (workers === 1) return createLinuxEngine(options);
  // An engine that takes over alone could not listen where the others do.
  const { successor: _, limits = {}, ...others } = options;
  const share = shareOfLimits({ ...DEFAULT_LIMITS, ...limits }, workers);
  const started = await Promise.allSettled(
    Array.from({ length: workers }, () =>
      createLinuxEngine({ ...others, limits: share, engines: workers }),
    ),
  );
  const engines = started.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
  const failed = started.find((each) => each.status === 'rejected');
  if (failed === undefined) {
    return new SharedEngine(engines, { isSteered: engines.every(({ steers }) => steers) });
  }
  await Promise.all(engines.map((engine) => engine.destroy()));
  throw failed.reason;
}

/** What each of them gets of the limits that are of all service ports together. */
function shareOfLimits(limits: EngineLimits, workers: number): EngineLimits {
  const part = (limit: number): number => Math.max(1, Math.floor(limit / workers));
  return {
    ...limits,
    maxConnections: part(limits.maxConnections),
    maxUdpSessions: part(limits.maxUdpSessions),
    bulkBufferBudget: Math.floor(limits.bulkBufferBudget / workers),
  };
}
