import { setImmediate } from 'node:timers/promises';

/** Work that may take long: it yields where others may have their turn. */
export type Parts<Result> = Generator<void, Result, void>;

/**
 * Does the work with a turn of the event loop for each part, so that traffic does not wait for it. Rejects with the signal's
 * reason when that aborts.
 */
export async function inTurns<Result>(work: Parts<Result>, signal?: AbortSignal): Promise<Result> {
  for (;;) {
    signal?.throwIfAborted();
    const step = work.next();
    if (step.done === true) return step.value;
    await setImmediate();
  }
}
