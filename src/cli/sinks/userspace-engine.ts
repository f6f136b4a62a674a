import { createHash } from 'node:crypto';
import {
  accessSync,
  constants,
  lstatSync,
  mkdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { isBuiltin } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { KpngError, messageOf } from '../../errors.ts';
import type { Log } from '../../observe/log.ts';
import type { Portal } from '../../portal/portal.ts';
import type { NewCounters } from '../../proxysocket/counters.ts';
import type { Engine } from '../../proxysocket/engine.ts';
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

/** Crashes in a row after which the next start avoids the engine. */
export const MAX_CRASHES = 3;
/** Crashes are forgotten after this long, so that the engine gets another chance. Milliseconds. */
const WINDOW_MS = 60 * 60_000;

/**
 * Remembers crashes in the start-up probes of the `linux` engine: a wrong system call can end the process without a
 * message, and a service manager would restart it into the same crash. `instance` identifies this instance of the
 * program among others of the same user; `folder`, with the files, is created when needed.
 *
 * A start adds its process to the file before the probes, about a second, and removes the file after them; a process
 * that is still in it has crashed in them, unless it runs. Later crashes do not count, because only the parent learns
 * how a process died.
 *
 * Nothing is remembered where the file cannot be written, or others can write to the directory. `pid`: the process that
 * starts.
 */
export function crashHistory(instance: string, folder = defaultFolder(), pid = process.pid) {
  const name = createHash('sha256').update(instance).digest('hex').slice(0, 16);
  /** Has the process id of each start. Removing it makes the next start retry the engine. */
  const path = join(folder, name);
  const starts = (): string[] => {
    const found = isPrivate(folder) ? attempt(() => lstatSync(path)) : undefined;
    if (found === undefined || found.mtimeMs <= Date.now() - WINDOW_MS) return [];
    return attempt(() => readFileSync(path, 'latin1').split('\n')) ?? [];
  };
  /** In a container, a start may have the process id of the one before. */
  const isRunning = (start: string): boolean =>
    Number(start) !== pid && attempt(() => process.kill(Number(start), 0)) === true;
  const crashes = (): number => starts().filter((start) => !isRunning(start)).length;
  /** Runs the probes. If the file cannot be written, no crash is remembered; if it stays, it counts until it is too old. */
  const during = async <T>(probes: () => Promise<T>): Promise<T> => {
    const end = (): void => attempt(() => rmSync(path, { force: true }));
    attempt(() => {
      mkdirSync(folder, { mode: 0o700, recursive: true });
      const last = [...starts(), pid].slice(-MAX_CRASHES);
      if (isPrivate(folder)) writeFileSync(path, last.join('\n'), { mode: 0o600 });
    });
    // An uncaught error or a second signal; not a crash in a system call.
    process.once('exit', end);
    try {
      return await probes();
    } finally {
      process.off('exit', end);
      end();
    }
  };
  return { path, crashes, during };
}

/** Whether it is a folder that only its owner, this user, may write to. */
function isPrivate(path: string): boolean {
  const found = attempt(() => lstatSync(path));
  if (found === undefined) return false;
  const { uid, mode } = found;
  return found.isDirectory() && (mode & 0o022) === 0 && uid === (process.getuid?.() ?? uid);
}

/** One per user: in `/run` where writable, since it is emptied at boot. */
function defaultFolder(): string {
  const folder = attempt(() => {
    accessSync('/run', constants.W_OK);
    return '/run';
  });
  return join(folder ?? tmpdir(), `kpng-userspace-linux-engine.${process.getuid?.() ?? 0}`);
}

/** Undefined if the work throws. */
function attempt<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch {
    return undefined;
  }
}
