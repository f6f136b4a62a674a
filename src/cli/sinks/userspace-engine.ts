import { isBuiltin } from 'node:module';
import { KpngError, messageOf } from '../../errors.ts';
import type { Log } from '../../observe/log.ts';
import type { Portal } from '../../portal/portal.ts';
import type { NewCounters } from '../../proxysocket/core/service-port-table.ts';
import type { Engine } from '../../proxysocket/engine.ts';
import type { EngineLimits } from '../../proxysocket/limits.ts';
import type { PoolOptions } from '../../proxysocket/pool/pool.ts';
import { hostAddresses } from '../../util/host-addresses.ts';
import { crashHistory } from './crash-history.ts';

export interface EngineOptions {
  readonly engine: 'auto' | 'node' | 'linux';
  /** Worker threads of the `linux` engine. Default: 1. */
  readonly workers?: number;
  readonly limits: EngineLimits;
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
  options: EngineOptions,
  chosen: { readonly portal?: Pick<Portal, 'kind' | 'hostAddresses'> },
  log: Log,
  hooks: EngineHooks = {},
): Promise<Required<Engine>> {
  const { engine, workers = 1, limits } = options;
  const makeNode = async (counters?: NewCounters): Promise<Required<Engine>> => {
    const { createNodeEngine } = await import('../../proxysocket/node/engine.ts');
    const { canAcceptWithOnread } = await import('../../proxysocket/node/tcp/accept.ts');
    if (await (hooks.canAcceptWithOnread ?? canAcceptWithOnread)()) {
      log.v(1, 'The node engine reads clients into its own buffers');
    } else {
      const reason = 'this Node does not accept sockets with onread';
      log.info('The node engine uses only documented functions; uploads cost more CPU', { reason });
    }
    return createNodeEngine({
      limits,
      ...(counters !== undefined && { counters }),
      hostAddresses: () => chosen.portal?.hostAddresses?.() ?? hostAddresses(),
    });
  };
  if (engine !== 'node') {
    try {
      // The node engine could not open the sockets of that portal.
      const fallback = () => (chosen.portal?.kind === 'transparent' ? undefined : makeNode);
      const pool = await startPool(options, fallback, log, hooks);
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

/** Starts the `linux` engine, unless it has recently crashed the process too often. Rejects with the reason. */
async function startPool(
  { engine, workers = 1, limits, instance }: EngineOptions,
  fallback: NonNullable<PoolOptions['fallback']>,
  log: Log,
  { crashFolder, platform = process.platform, module, backoff }: EngineHooks,
): Promise<Required<Engine>> {
  // A worker would fail on this as well, but starting one is expensive.
  if (platform !== 'linux') throw new Error(`platform: this is ${platform}`);
  if (!isBuiltin('node:ffi')) throw new Error('platform: this Node has no node:ffi');
  const history = crashHistory({
    instance,
    ...(crashFolder !== undefined && { folder: crashFolder }),
  });
  if (history.isOpen()) {
    const [crashes, { path }] = [history.crashes(), history];
    const what = `the last ${crashes} starts crashed in its probes; remove ${path} to retry`;
    if (engine === 'auto') throw new Error(`crash-loop: ${what}`);
    log.warn('Starting the linux engine although it crashed before', { crashes, path });
  }
  history.begin();
  // An uncaught error or a second signal; not a crash in a system call.
  const end = (): void => history.end();
  process.once('exit', end);
  try {
    const { Pool } = await import('../../proxysocket/pool/pool.ts');
    return await Pool.start({
      limits,
      workers,
      fallback,
      ...(module !== undefined && { module }),
      ...(backoff !== undefined && { backoff }),
    });
  } finally {
    process.off('exit', end);
    history.end();
  }
}
