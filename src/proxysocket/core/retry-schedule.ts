import type { Clock, Timer } from '../../util/clock.ts';

/** Between two batches of retries, so that thousands of them do not hold up the relays. Milliseconds. */
const PAUSE_MS = 10;
/** Between two looks at all plans, when nothing is overdue. Milliseconds. */
const GRAIN_MS = 100;

/**
 * Things to be tried again, each at its time or up to a tenth of a second later, with one timer and at most so many at once.
 *
 * What is due is handed out once and has to be put in again, or deleted, by then.
 */
export class RetrySchedule<T> {
  readonly #clock: Clock;
  readonly #atOnce: number;
  readonly #retry: (due: readonly T[]) => void;
  readonly #plans = new Map<T, number>();
  #timer: { readonly at: number; readonly timer: Timer } | undefined;
  #lookedAt = -Infinity;

  constructor(clock: Clock, atOnce: number, retry: (due: readonly T[]) => void) {
    this.#clock = clock;
    this.#atOnce = atOnce;
    this.#retry = retry;
  }

  get size(): number {
    return this.#plans.size;
  }

  items(): readonly T[] {
    return [...this.#plans.keys()];
  }

  /** Tries an item at a time of the clock, instead of any earlier plan for it. */
  set(item: T, at: number): void {
    this.#plans.set(item, at);
    this.#arm(Math.max(at, this.#lookedAt + GRAIN_MS, this.#clock.now() + PAUSE_MS));
  }

  delete(item: T): void {
    if (this.#plans.delete(item) && this.#plans.size === 0) this.#disarm();
  }

  clear(): void {
    this.#plans.clear();
    this.#disarm();
  }

  #arm(at: number): void {
    if (this.#timer !== undefined && this.#timer.at <= at) return;
    this.#disarm();
    const timer = this.#clock.setTimer(at - this.#clock.now(), () => this.#run());
    this.#timer = { at, timer };
  }

  #disarm(): void {
    this.#timer?.timer.cancel();
    this.#timer = undefined;
  }

  #run(): void {
    this.#timer = undefined;
    const now = this.#clock.now();
    this.#lookedAt = now;
    const due: (readonly [T, number])[] = [];
    let next = Infinity;
    for (const plan of this.#plans) {
      if (plan[1] <= now) due.push(plan);
      else next = Math.min(next, plan[1]);
    }
    const batch = due.toSorted(([, one], [, other]) => one - other).slice(0, this.#atOnce);
    for (const [item] of batch) this.#plans.delete(item);
    if (batch.length < due.length) this.#arm(now + PAUSE_MS);
    else if (next < Infinity) this.#arm(Math.max(next, now + GRAIN_MS));
    if (batch.length > 0) this.#retry(batch.map(([item]) => item));
  }
}
