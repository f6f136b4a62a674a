import { isBuiltin } from 'node:module';
import { KpngError, messageOf } from '../../errors.ts';
import type { Log } from '../../observe/log.ts';
import type { Portal } from '../../portal/portal.ts';
import type { NewCounters } from '../../proxysocket/counters.ts';
import type { Engine } from '../../proxysocket/engine.ts';
import { crashHistory, MAX_CRASHES } from '../../proxysocket/linux/crash-history.ts';
import type { PoolOptions } from '../../proxysocket/pool/pool.ts';
import { hostAddresses } from '../../util/host-addresses.ts';
import type { UserspaceOptions } from './userspace-options.ts';

export interface EngineOptions extends Pick<UserspaceOptions, 'engine' | 'limits'> {
  /** Worker threads of the `linux` engine. Default: 1. */
  readonly workers?: number;
  /** Identifies this instance of the program. */
  readonly instance: string;
}

export interface EngineHooks extends Pick<PoolOptions, 'module' | 'backoff'> {
  readonly crashFolder?: string;
  readonly platform?: NodeJS.Platform;
  readonly canAcceptWithOnread?: () => Promise<boolean>;
}

/**
 * Creates the engine of `--engine` and loads no other. With `auto`, logs the choice and its reason. Rejects with
 * KPNG_ENGINE_UNFIT if `linux` is required and cannot work. `chosen.portal` is set before the engine serves.
 */
export async function createEngine(
  { engine, workers = 1, limits, instance }: EngineOptions,
  chosen: { readonly portal?: Pick<Portal, 'kind' | 'hostAddresses'> },
  log: Log,
  { crashFolder, platform = process.platform, canAcceptWithOnread, ...hooks }: EngineHooks = {},
): Promise<Required<Engine>> {
  const makeNode = async (counters?: NewCounters): Promise<Required<Engine>> => {
    const { createNodeEngine } = await import('../../proxysocket/node/engine.ts');
    const accept = await import('../../proxysocket/node/tcp/accept.ts');
    if (await (canAcceptWithOnread ?? accept.canAcceptWithOnread)()) {
      log.v(1, 'The node engine reads clients into its own buffers');
    } else {
      const reason = 'this Node does not accept sockets with onread';
      log.info('The node engine uses only documented functions; uploads cost more CPU', { reason });
    }
    const addresses = () => chosen.portal?.hostAddresses?.() ?? hostAddresses();
    return createNodeEngine({ limits, ...(counters && { counters }), hostAddresses: addresses });
  };
  if (engine !== 'node') {
    try {
      // A worker would fail on these as well, but starting one is expensive.
      if (platform !== 'linux') throw new Error(`platform: this is ${platform}`);
      if (!isBuiltin('node:ffi')) throw new Error('platform: this Node has no node:ffi');
      // The node engine could not open the sockets of that portal.
      const fallback = (counters: NewCounters) =>
        chosen.portal?.kind === 'transparent' ? undefined : makeNode(counters);
      const { path, during, ...history } = crashHistory(instance, crashFolder);
      const crashes = history.crashes();
      if (crashes >= MAX_CRASHES) {
        const what = `the last ${crashes} starts crashed in its probes; remove ${path} to retry`;
        if (engine === 'auto') throw new Error(`crash-loop: ${what}`);
        log.warn('Starting the linux engine although it crashed before', { crashes, path });
      }
      const { Pool } = await import('../../proxysocket/pool/pool.ts');
      const pool = await during(() => Pool.start({ limits, workers, fallback, ...hooks }));
      if (pool.workers < workers)
        log.warn('The kernel cannot spread clients by address; there is only one worker', {
          workers,
        });
      if (engine === 'auto') log.info('Chose --engine linux', { reason: 'all probes passed' });
      return pool;
    } catch (cause) {
      const reason = messageOf(cause);
      if (engine === 'linux') {
        const message = `--engine linux cannot work here: ${reason}`;
        throw new KpngError('KPNG_ENGINE_UNFIT', message, { cause });
      }
      log.info('Chose --engine node', { reason });
    }
  }
  if (workers > 1) {
    log.warn('--workers needs the linux engine; the node engine runs in the main thread', {
      workers,
    });
  }
  return makeNode();
}
