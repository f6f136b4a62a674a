import { KpngError, messageOf } from '../../errors.ts';
import type { Log } from '../../observe/log.ts';
import type { Portal } from '../../portal/portal.ts';
import type { Engine } from '../../proxysocket/engine.ts';
import type { GuardOptions } from '../../proxysocket/linux/guarded.ts';
import type { FormerPort } from '../../proxysocket/linux/successor.ts';
import type { EngineLimits } from '../../proxysocket/limits.ts';

export type EngineChoice = 'auto' | 'node' | 'linux';

export interface EngineOptions {
  readonly engine: EngineChoice;
  /** Threads of the `linux` engine. Default: 1. */
  readonly workers?: number;
  readonly limits: EngineLimits;
}

/**
 * Makes the engine that `--engine` asks for, and loads no other. Rejects with KPNG_ENGINE_UNFIT when it
 * is to be `linux` and cannot. `guard` is for tests.
 */
export async function createEngine(
  { engine, workers = 1, limits }: EngineOptions,
  portal: Pick<Portal, 'hostAddresses'>,
  log: Log,
  guard: GuardOptions = {},
): Promise<Engine> {
  const nodeEngine = async (formerPort?: FormerPort): Promise<Engine> => {
    const { createNodeEngine } = await import('../../proxysocket/node-engine.ts');
    return createNodeEngine({
      limits,
      ...(formerPort !== undefined && { formerPort }),
      ...(portal.hostAddresses !== undefined && {
        hostAddresses: () => portal.hostAddresses?.() ?? [],
      }),
    });
  };
  if (engine !== 'node') {
    try {
      const { createGuardedLinuxEngine } = await import('../../proxysocket/linux/guarded.ts');
      const created = await createGuardedLinuxEngine({
        limits,
        workers,
        successor: nodeEngine,
        ...guard,
      });
      if (engine === 'auto') log.info('Chose --engine linux', { reason: 'all probes passed' });
      return created;
    } catch (error) {
      const reason = messageOf(error);
      if (engine === 'linux') {
        throw new KpngError('KPNG_ENGINE_UNFIT', `--engine linux cannot work here: ${reason}`, {
          cause: error,
        });
      }
      log.info('Chose --engine node', { reason, ...(workers > 1 && { workers: 1 }) });
    }
  }
  return nodeEngine();
}
