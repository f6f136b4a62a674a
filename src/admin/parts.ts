import { setImmediate } from 'node:timers/promises';

/** Work that may take long: it yields where others may have their turn. */
export type Parts<Result> = Generator<void, Result, void>;

/** Does the work with a turn of the event loop for each part, so that traffic does not wait for it. */
export async function inTurns<Result>(work: Parts<Result>): Promise<Result> {
  for (;;) {
    const step = work.next();
    if (step.done === true) return step.value;
    await setImmediate();
  }
}
