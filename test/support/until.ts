import { setTimeout as delay } from 'node:timers/promises';

/** What takes longer than so many turns is not worth a busy CPU. */
const BUSY_TURNS = 200;

/**
 * Waits until a condition holds, looking again at every turn of the event loop, and later every millisecond. Rejects
 * after the deadline, which is generous: it only decides how long a failing test takes.
 */
export async function until(
  condition: () => boolean,
  deadlineMs = 60_000,
  what = condition.toString(),
): Promise<void> {
  const end = performance.now() + deadlineMs;
  for (let turn = 0; !condition(); turn += 1) {
    if (performance.now() > end) throw new Error(`still not so: ${what}`);
    if (turn < BUSY_TURNS) await new Promise(setImmediate);
    else await delay(1);
  }
}

/** Polls every 50 ms until the condition holds; the deadline only bounds a failing test. */
export async function eventually(look: () => boolean | Promise<boolean>): Promise<boolean> {
  const end = performance.now() + 60_000;
  while (performance.now() < end) {
    if (await look()) return true;
    await delay(50);
  }
  return false;
}

/** Things that arrive, to be waited for one after another. */
export class Mailbox<T> {
  readonly #what: string;
  readonly #items: T[] = [];

  /** `what` is named when nothing arrives. */
  constructor(what: string) {
    this.#what = what;
  }

  /** How many have arrived and were not taken. */
  get size(): number {
    return this.#items.length;
  }

  put(item: T): void {
    this.#items.push(item);
  }

  /** The next one. Rejects when none arrives within the deadline. */
  async take(): Promise<T> {
    await until(() => this.size > 0, undefined, this.#what);
    return this.#items.shift() as T;
  }
}
