import { extname } from 'node:path';
import { threadModule } from '../../util/bundle.ts';
import { ThreadEngine, type ThreadEngineOptions } from '../threads/engine.ts';

const MODULE = threadModule(
  'plane-worker',
  new URL(`./worker/main${extname(import.meta.url)}`, import.meta.url),
);

/** What the thread of the engine on system calls runs. */
export const LINUX_THREAD = { kind: 'linux', module: MODULE } as const;

export type LinuxEngineOptions = Omit<ThreadEngineOptions, 'kind' | 'module'> & {
  /** The module that worker threads run, for tests. */
  readonly module?: URL;
};

/** The engine on system calls, for Linux. `start` has to follow. */
export function newLinuxEngine(options: LinuxEngineOptions = {}): ThreadEngine {
  return new ThreadEngine({ ...LINUX_THREAD, ...options });
}

/**
 * The same, when it has started. Rejects with an UnfitError that names the start-up probe that has failed;
 * nothing is left of the engine then.
 */
export async function createLinuxEngine(options: LinuxEngineOptions = {}): Promise<ThreadEngine> {
  const engine = newLinuxEngine(options);
  await engine.start();
  return engine;
}
