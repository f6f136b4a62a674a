import type { Clock, Timer } from '../../util/clock.ts';
import { Heap } from '../../util/heap.ts';

/** Between two bundles of retries, so that thousands of them do not hold up the relays. */
const PAUSE_MS = 10;
/** Plans that have been given up stay until there are more of them than of the others, and than this. */
const FEW = 64;

interface Plan<T> {
  readonly item: T;
  readonly at: number;
  /** Those of the same time are tried in the order in which they came. */
  readonly order: number;
}

/**
 * Things to be tried again, each at its time, with one timer and at most so many at once. What is not
 * due costs nothing: only the earliest is looked at.
 *
 * What is due is handed out once and has to be put in again, or deleted, by then.
 */
export class RetrySchedule<T> {
  readonly #clock: Clock;
  readonly #atOnce: number;
  readonly #retry: (due: readonly T[]) => void;
  readonly #plans = new Map<T, Plan<T>>();
  /** With plans that have been given up since. */
  #queue = new Heap<Plan<T>>(earlier);
  #order = 0;
  #timer: { readonly at: number; readonly timer: Timer } | undefined;

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
    this.#order += 1;
    const plan = { item, at, order: this.#order };
    this.#plans.set(item, plan);
    this.#queue.push(plan);
    this.#tidy();
    this.#arm(at);
  }

  delete(item: T): void {
    if (!this.#plans.delete(item)) return;
    this.#tidy();
    if (this.#plans.size === 0) this.#disarm();
  }

  clear(): void {
    this.#plans.clear();
    this.#tidy();
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
    let next = this.#earliest();
    while (next !== undefined && next.at <= now && due.length < this.#atOnce) {
      due.push(next.item);
      this.#plans.delete(next.item);
      next = this.#earliest();
    }
    if (next !== undefined) this.#arm(next.at);
    if (due.length > 0) this.#retry(due);
  }

  /** The earliest plan that holds. */
  #earliest(): Plan<T> | undefined {
    for (;;) {
      const plan = this.#queue.peek();
      if (plan === undefined || this.#plans.get(plan.item) === plan) return plan;
      this.#queue.pop();
    }
  }

  /** Forgets what has been given up, before that is most of the queue. */
  #tidy(): void {
    if (this.#queue.size > 2 * this.#plans.size + FEW) {
      this.#queue = new Heap(earlier, [...this.#plans.values()]);
    }
  }
}

function earlier<T>(one: Plan<T>, other: Plan<T>): number {
  return one.at - other.at || one.order - other.order;
}
