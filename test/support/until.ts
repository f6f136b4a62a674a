import { setTimeout as delay } from 'node:timers/promises';

/** What takes longer than so many turns is not worth a busy CPU. */
const BUSY_TURNS = 200;

/**
 * Waits until a condition holds, looking again at every turn of the event loop, and later every millisecond. Rejects
 * after the deadline, which is generous: it only decides how long a failing test takes.
 */
export async function until(condition: () => boolean, deadlineMs = 20_000): Promise<void> {
  const end = performance.now() + deadlineMs;
  for (let turn = 0; !condition(); turn += 1) {
    if (performance.now() > end) throw new Error(`still not so: ${condition.toString()}`);
    if (turn < BUSY_TURNS) await new Promise(setImmediate);
    else await delay(1);
  }
}
