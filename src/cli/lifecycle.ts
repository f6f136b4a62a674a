import type { EventEmitter } from 'node:events';
import { writeFile } from 'node:fs/promises';
import type { Writable } from 'node:stream';
import type { AdjustableLog, Log } from '../observe/log.ts';
import type { ServicePortSnapshot } from '../proxysocket/engine.ts';
import type { Activation } from '../util/activation.ts';
import { type Clock, systemClock, type Timer } from '../util/clock.ts';
import { formatDuration } from '../util/duration.ts';
import type { BoundCommand } from './command.ts';

export interface ProcessLike extends Pick<EventEmitter, 'on' | 'off'> {
  exit(code: number): void;
}

export interface StopReason {
  readonly logFields: { readonly signal: string } | { readonly by: string };
  /** Time until the system kills the process: limits the drain, and there is no drain delay. Milliseconds. */
  readonly withinMs?: number;
}

/** How a HUP stops the process, because its terminal or console was closed; undefined: it does not. */
export type HangUp = Pick<StopReason, 'withinMs'> | undefined;

/** A parsed command line, ready to run. */
export interface RunOptions extends Omit<BoundCommand, 'warnings' | 'misspelt' | 'ignored'> {
  readonly log: AdjustableLog;
  readonly process: ProcessLike;
  readonly stdout: Writable;
  readonly hangUp: HangUp;
  /** The configuration file. `read` parses the same command line with new content of it, or throws a KpngError. */
  readonly config?:
    { readonly path: string; readonly read: (bytes: Uint8Array) => BoundCommand } | undefined;
}

/** A run. Read its settings at each use: those that can change now do so while the program runs. */
export interface Live extends RunOptions {
  settings: RunOptions['settings'];
  readonly activation: Activation;
  /** Stops gracefully, for a reason. Idempotent. */
  readonly stop: (reason: StopReason) => void;
}

export function meaningOfHangUp(platform: NodeJS.Platform, atTerminal: boolean): HangUp {
  // Windows ends a process five seconds after its console is closed; some of that is left for exiting.
  if (platform === 'win32') return { withinMs: 4000 };
  return atTerminal ? {} : undefined;
}

/**
 * Handles signals and uncaught errors, as kpng does where it is sensible.
 *
 * INT, TERM and QUIT: the first one stops the process gracefully, the second one ends it at once with code 1. HUP does the
 * same when a terminal or console was closed; otherwise it calls `reload`, which re-reads the configuration file, if any;
 * state files are watched anyway. On Windows, Ctrl-C is INT and Ctrl-Break does the same.
 * Returns the function that ends the handling.
 */
export function watchProcess(
  process: ProcessLike,
  log: Log,
  hangUp: HangUp,
  onStop: (reason: StopReason) => void,
  reload = () =>
    log.info('SIGHUP ignored: there is no configuration file; state files reload by themselves'),
): () => void {
  let stopping = false;
  const stop = (signal: string): void => {
    if (stopping) {
      log.warn('Second signal; exiting at once', { signal });
      process.exit(1);
      return;
    }
    stopping = true;
    onStop({ logFields: { signal }, ...(signal === 'SIGHUP' && hangUp) });
  };
  const crash = (error: unknown): void => {
    const stack = error instanceof Error ? { stack: error.stack } : {};
    log.error('Unexpected error; exiting at once', { err: error, ...stack });
    process.exit(1);
  };
  // SIGBREAK is Ctrl-Break, on Windows only.
  const signals = ['SIGINT', 'SIGTERM', 'SIGQUIT', 'SIGBREAK'];
  const handlers = new Map<string, (argument: string) => void>([
    ...signals.map((signal) => [signal, stop] as const),
    ['SIGHUP', hangUp === undefined ? () => reload() : stop],
    ['uncaughtException', crash],
    ['unhandledRejection', crash],
  ]);
  for (const [event, handler] of handlers) process.on(event, handler);
  return () => {
    for (const [event, handler] of handlers) process.off(event, handler);
  };
}

/** Applies `--oom-score-adj`, on Linux. If the kernel refuses, only a warning is logged. */
export async function setOomScore(oomScoreAdj: number | undefined, log: Log): Promise<void> {
  if (oomScoreAdj === undefined) return;
  try {
    await writeFile('/proc/self/oom_score_adj', String(oomScoreAdj), { flag: 'r+' });
  } catch (err) {
    const message = 'OOM score not set; lowering it needs the capability SYS_RESOURCE';
    log.warn(message, { oomScoreAdj, err });
  }
}

/** Counts open TCP connections and UDP sessions. O(service ports), so call it rarely. */
export function remainingOf(snapshot: readonly ServicePortSnapshot[]) {
  const left = { connections: 0, sessions: 0 };
  for (const { protocol, counters } of snapshot) {
    left[protocol === 'TCP' ? 'connections' : 'sessions'] += counters.active;
  }
  return left;
}

/** A drain is logged at its start, and then at this fraction of its time, within these bounds. */
const SHARE = 5;
const MIN_INTERVAL_MS = 1000;
const MAX_INTERVAL_MS = 30_000;

/**
 * Waits for `work` within the time limit, and logs progress while connections are open. Rejects as `work` does.
 * `remaining`: undefined if there is no data path.
 */
export async function drain(
  work: Promise<void>,
  timeoutMs: number,
  remaining: (() => ReturnType<typeof remainingOf>) | undefined,
  log: Log,
  clock: Clock = systemClock,
): Promise<void> {
  const begin = clock.now();
  const everyMs = Math.min(MAX_INTERVAL_MS, Math.max(MIN_INTERVAL_MS, timeoutMs / SHARE));
  let reminder: Timer | undefined;
  const report = (): void => {
    reminder = clock.setTimer(everyMs, report);
    const left = remaining?.();
    if (left === undefined || left.connections + left.sessions === 0) return;
    const cutIn = formatDuration(Math.max(0, Math.round(begin + timeoutMs - clock.now())));
    log.info('Waiting for connections to end', { ...left, cutIn });
  };
  const timeout = Promise.withResolvers<void>();
  const limit = clock.setTimer(timeoutMs, () => {
    const keys = { drainTimeout: formatDuration(timeoutMs), ...remaining?.() };
    log.warn('Drain timeout reached; closing the remaining connections', keys);
    timeout.resolve();
  });
  report();
  try {
    await Promise.race([work, timeout.promise]);
  } finally {
    limit.cancel();
    reminder?.cancel();
  }
}
