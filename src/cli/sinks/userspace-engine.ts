import { KpngError, messageOf } from '../../errors.ts';
import type { Log } from '../../observe/log.ts';
import type { Portal } from '../../portal/portal.ts';
import type { Engine } from '../../proxysocket/engine.ts';
import type { GuardOptions } from '../../proxysocket/linux/guarded.ts';
import type { createNodeWorkers } from '../../proxysocket/workers/create.ts';
import type { FormerPort } from '../../proxysocket/threads/successor.ts';
import type { EngineLimits } from '../../proxysocket/limits.ts';

export type EngineChoice = 'auto' | 'node' | 'linux';

export interface EngineOptions {
  readonly engine: EngineChoice;
  /** Threads that carry traffic. Default: 1, which is the main one with the `node` engine. */
  readonly workers?: number;
  readonly limits: EngineLimits;
}

/** For tests. */
export interface Seams {
  readonly nodeWorkers?: Parameters<typeof createNodeWorkers>[1];
  readonly canAcceptWithOnread?: () => Promise<boolean>;
}

/** Further deaths cannot be worse than no engine at all, which is all that could be had instead. */
function insist(log: Log): Required<Pick<GuardOptions, 'onDeaths'>> {
  return {
    onDeaths: (deaths, path) =>
      log.warn('The last runs with --engine linux died young; trying it all the same', {
        deaths,
        path,
      }),
  };
}

/** Says what relaying with the node engine costs on this Node. */
async function logAcceptance(log: Log, seams: Seams): Promise<void> {
  const { canAcceptWithOnread } = await import('../../proxysocket/node/tcp/accept.ts');
  if (await (seams.canAcceptWithOnread ?? canAcceptWithOnread)()) {
    log.v(1, 'The node engine reads clients into its own buffers');
  } else {
    log.info('The node engine uses only documented functions; uploads cost more CPU', {
      reason: 'this Node does not accept sockets with onread',
    });
  }
}

/**
 * Makes the engine that `--engine` asks for, and loads no other. Rejects with KPNG_ENGINE_UNFIT when it
 * is to be `linux` and cannot. Workers of the `node` engine that cannot share their places, or fail
 * to start, become a single one, and the log says why: as information or, for a failure, as a warning.
 * `guard` tells when the process is asked to end; the rest of it is for tests.
 */
export async function createEngine(
  { engine, workers = 1, limits }: EngineOptions,
  portal: Pick<Portal, 'hostAddresses'>,
  log: Log,
  guard: GuardOptions = {},
  seams: Seams = {},
): Promise<Required<Engine>> {
  const host = portal.hostAddresses !== undefined && {
    hostAddresses: () => portal.hostAddresses?.() ?? [],
  };
  const nodeEngine = async (formerPort?: FormerPort): Promise<Required<Engine>> => {
    const { createNodeEngine } = await import('../../proxysocket/node/engine.ts');
    await logAcceptance(log, seams);
    return createNodeEngine({ limits, ...(formerPort !== undefined && { formerPort }), ...host });
  };
  const nodeWorkers = async (): Promise<Required<Engine>> => {
    const { createNodeWorkers } = await import('../../proxysocket/workers/create.ts');
    try {
      const several = await createNodeWorkers(workers, { limits, ...host, ...seams.nodeWorkers });
      await logAcceptance(log, seams);
      return several;
    } catch (error) {
      const { UnfitError } = await import('../../proxysocket/threads/plane-worker.ts');
      if (error instanceof UnfitError) log.info('Chose --workers 1', { reason: error.message });
      else log.warn('The workers could not be started; going on with --workers 1', { err: error });
      return nodeEngine();
    }
  };
  if (engine !== 'node') {
    try {
      const { createGuardedLinuxEngine } = await import('../../proxysocket/linux/guarded.ts');
      const created = await createGuardedLinuxEngine({
        limits,
        workers,
        successor: nodeEngine,
        ...host,
        ...(engine === 'linux' && insist(log)),
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
      log.info('Chose --engine node', { reason });
    }
  }
  return workers === 1 ? nodeEngine() : nodeWorkers();
}
