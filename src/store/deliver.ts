import { KpngError, messageOf } from '../errors.ts';
import { Backoff, DEFAULT_BACKOFF, type BackoffPolicy } from '../util/backoff.ts';
import { systemClock, type Clock, type Timer } from '../util/clock.ts';
import { SerialQueue } from '../util/serial-queue.ts';
import { sinkFailed, sinkRecovered } from './events.ts';
import type { LocalChange, LocalSink } from './local-view.ts';

export interface DelivererOptions {
  readonly clock?: Clock | undefined;
  readonly random?: (() => number) | undefined;
  /** Waits between attempts that fail. Default: 1 s growing to 30 s. */
  readonly backoff?: BackoffPolicy | undefined;
  /** Called after each attempt that failed, with the error that `deliver` resolves with. */
  readonly onFailed?: ((error: KpngError) => void) | undefined;
}

/**
 * Delivers change sets to a sink, one at a time, without losing any.
 *
 * When the sink rejects, its keys are kept: they become part of the next change set, and if none comes they are
 * retried on their own, with growing delays.
 */
export function delivererTo(
  sink: LocalSink,
  {
    clock = systemClock,
    random = Math.random,
    backoff: policy = DEFAULT_BACKOFF,
    onFailed,
  }: DelivererOptions = {},
) {
  const backoff = new Backoff(policy, random);
  const queue = new SerialQueue();
  /** The changes that the sink has not applied yet. */
  let undelivered: LocalChange | undefined;
  let retry: Timer | undefined;
  let failures = 0;
  let isClosed = false;

  const attempt = async ({ view, changed }: LocalChange): Promise<KpngError | undefined> => {
    retry?.cancel();
    const keys = undelivered ? new Set([...undelivered.changed, ...changed]) : changed;
    const change = { view, changed: keys };
    try {
      await sink.sync(change);
    } catch (cause) {
      return failed(change, cause);
    }
    undelivered = undefined;
    if (failures > 0) sinkRecovered.publish({ failures });
    failures = 0;
    backoff.reset();
    return undefined;
  };
  const failed = (change: LocalChange, cause: unknown): KpngError => {
    undelivered = change;
    failures += 1;
    const retryInMs = backoff.next();
    const waiting = change.changed.size;
    const what = `A change of ${waiting} service${waiting === 1 ? '' : 's'}`;
    const message = `${what} failed: ${messageOf(cause)}`;
    const error = new KpngError('KPNG_SINK_FAILED', message, { cause });
    // Unless a change set includes it meanwhile.
    if (!isClosed) retry = clock.setTimer(retryInMs, () => void deliver(() => undelivered));
    onFailed?.(error);
    sinkFailed.publish({ error, waiting, retryInMs });
    return error;
  };
  const deliver = (
    complete: () => LocalChange | undefined | Promise<LocalChange | undefined>,
  ): Promise<KpngError | undefined> =>
    queue.run(async () => {
      if (isClosed) return undefined;
      const change = await complete();
      return change && attempt(change);
    });
  return {
    /**
     * Calls `complete` when the sink is idle, and delivers what it returns, if anything. `complete` may therefore
     * change the view; it must not reject. Resolves when the sink has settled, with the error (code KPNG_SINK_FAILED)
     * if it failed. After `close` it does nothing.
     */
    deliver,
    /** Stops retrying. Resolves when the sink is idle. Idempotent. */
    async close(): Promise<void> {
      isClosed = true;
      retry?.cancel();
      await queue.idle();
    },
  };
}
