import type { ServicePortSnapshot } from '../proxysocket/engine.ts';
import type { Log } from '../observe/log.ts';
import type { Clock, Timer } from '../util/clock.ts';
import { formatDuration } from '../util/duration.ts';

/** Open connections of the data path. */
export interface Remaining {
  /** TCP connections. */
  readonly connections: number;
  /** UDP sessions. */
  readonly sessions: number;
}

export interface DrainOptions {
  readonly log: Log;
  readonly clock: Clock;
  /** Time limit. Milliseconds. */
  readonly timeoutMs: number;
  /** Undefined: no data path, so nothing to report. */
  readonly remaining: (() => Remaining) | undefined;
}

/** Time limits of a stop. Milliseconds. */
export interface StopTimes {
  /** How long new connections are still accepted. */
  readonly delayMs: number;
  /** How long open connections may last. */
  readonly timeoutMs: number;
}

/** The times of the flags, shortened to fit if the service manager kills the process after `withinMs`. */
export function stopTimes(flags: StopTimes, withinMs: number | undefined): StopTimes {
  if (withinMs === undefined) return flags;
  return { delayMs: 0, timeoutMs: Math.min(flags.timeoutMs, withinMs) };
}

/** A drain is logged at its start, and then at this fraction of its time, within these bounds. */
const SHARE = 5;
const MIN_INTERVAL_MS = 1000;
const MAX_INTERVAL_MS = 30_000;

/** Counts open connections. O(service ports), so call it rarely. */
export function remainingOf(snapshot: readonly ServicePortSnapshot[]): Remaining {
  let connections = 0;
  let sessions = 0;
  for (const { protocol, counters } of snapshot) {
    if (protocol === 'TCP') connections += counters.active;
    else sessions += counters.active;
  }
  return { connections, sessions };
}

/** Waits for `work` within the time limit, and logs progress while connections are open. Rejects as `work` does. */
export async function drain(work: Promise<void>, options: DrainOptions): Promise<void> {
  const { log, clock, timeoutMs, remaining } = options;
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
    const drainTimeout = formatDuration(timeoutMs);
    const message = 'Drain timeout reached; closing the remaining connections';
    log.warn(message, { drainTimeout, ...remaining?.() });
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
