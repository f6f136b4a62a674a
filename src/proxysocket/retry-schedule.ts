import type { Clock, Timer } from '../util/clock.ts';

/** Between two bundles of retries, so that thousands of them do not hold up the relays. */
const PAUSE_MS = 10;

/**
 * Things to be tried again, each at its time, with one timer and at most so many at once.
 *
 * What is due is handed out once and has to be put in again, or deleted, by then.
 */
export class RetrySchedule<T> {
  readonly #clock: Clock;
  readonly #atOnce: number;
  readonly #retry: (due: readonly T[]) => void;
  readonly #times = new Map<T, number>();
  #timer: { readonly at: number; readonly timer: Timer } | undefined;

  constructor(clock: Clock, atOnce: number, retry: (due: readonly T[]) => void) {
    this.#clock = clock;
    this.#atOnce = atOnce;
    this.#retry = retry;
  }

  get size(): number {
    return this.#times.size;
  }

  items(): readonly T[] {
    return [...this.#times.keys()];
  }

  /** Tries an item at a time of the clock, instead of any earlier plan for it. */
  set(item: T, at: number): void {
    this.#times.set(item, at);
    this.#arm(at);
  }

  delete(item: T): void {
    this.#times.delete(item);
    if (this.#times.size === 0) this.#disarm();
  }

  clear(): void {
    this.#times.clear();
    this.#disarm();
  }

  #arm(at: number): void {
    if (this.#timer !== undefined && this.#timer.at <= at) return;
    this.#disarm();
    const wait = Math.max(PAUSE_MS, at - this.#clock.now());
    this.#timer = { at, timer: this.#clock.setTimer(wait, () => this.#run()) };
  }

  #disarm(): void {
    this.#timer?.timer.cancel();
    this.#timer = undefined;
  }

  #run(): void {
    this.#timer = undefined;
    const now = this.#clock.now();
    const due: T[] = [];
    let next = Infinity;
    for (const [item, at] of this.#times) {
      if (at <= now && due.length < this.#atOnce) due.push(item);
      else next = Math.min(next, at);
    }
    for (const item of due) this.#times.delete(item);
    if (next < Infinity) this.#arm(next);
    if (due.length > 0) this.#retry(due);
  }
}
