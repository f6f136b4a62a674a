import { KpngError, messageOf } from '../errors.ts';
import { sinkFailed, sinkRecovered } from '../store/events.ts';
import type { GlobalStore } from '../store/global-store.ts';
import { Backoff, DEFAULT_BACKOFF, type BackoffPolicy } from '../util/backoff.ts';
import { pause, systemClock, type Clock } from '../util/clock.ts';
import { writeAtomically } from '../util/atomic-file.ts';
import { stateText } from './write.ts';

export interface FileSinkOptions {
  readonly store: GlobalStore;
  readonly path: string;
  /** Whether to write what Go kpng cannot read. Default: no. */
  readonly extended?: boolean | undefined;
  readonly backoff?: BackoffPolicy | undefined;
  readonly clock?: Clock | undefined;
  readonly random?: (() => number) | undefined;
}

/** Minimum interval between writes. Milliseconds. */
export const DEFAULT_INTERVAL_MS = 1000;

/**
 * Keeps a state file up to date with a store. After a change the whole file is rewritten atomically, at most once per
 * interval. Nothing is written before the state is synced. A failed write is retried with the state at that time.
 */
export function startFileSink({
  store,
  path,
  extended,
  backoff: policy = DEFAULT_BACKOFF,
  clock = systemClock,
  random = Math.random,
}: FileSinkOptions) {
  const stop = new AbortController();
  const backoff = new Backoff(policy, random);
  let written = 0;
  let failures = 0;
  let dueAt = -Infinity;
  let wake = (): void => undefined;
  const stopListening = store.onChange(() => wake());
  stop.signal.addEventListener('abort', () => wake());
  const isBehind = (): boolean => store.synced && store.revision > written;
  const follow = async (): Promise<void> => {
    for (let isLast = false; !isLast;) {
      if (!isBehind() && !stop.signal.aborted)
        await new Promise<void>((resolve) => (wake = resolve));
      const waitMs = dueAt - clock.now();
      if (isBehind() && waitMs > 0) await pause(waitMs, clock, stop.signal);
      isLast = stop.signal.aborted;
      if (!isBehind()) continue;
      // Writing takes several turns, but must show a single moment.
      const pin = store.pin();
      try {
        await writeAtomically(path, stateText(store, pin.revision, extended));
        written = pin.revision;
        if (failures > 0) sinkRecovered.publish({ failures });
        failures = 0;
        backoff.reset();
        dueAt = clock.now() + DEFAULT_INTERVAL_MS;
      } catch (cause) {
        failures += 1;
        const retryInMs = backoff.next();
        dueAt = clock.now() + retryInMs;
        const message = `The state could not be written to ${path}: ${messageOf(cause)}`;
        const error = new KpngError('KPNG_SINK_FAILED', message, { cause });
        sinkFailed.publish({ error, waiting: store.serviceCount, retryInMs });
      } finally {
        pin.release();
      }
    }
    stopListening();
  };
  const done = follow();
  return {
    /** Resolves when the file is up to date or cannot be written. Idempotent. */
    async close(): Promise<void> {
      stop.abort();
      await done;
    },
  };
}
