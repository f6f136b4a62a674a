import type { Clock } from '../../util/clock.ts';
import { LinkedList, type ListNode } from '../../util/linked-list.ts';

/** An item whose time is running. */
export type Deadline<T> = ListNode<Due<T>>;

interface Due<T> {
  readonly item: T;
  readonly at: number;
}

/**
 * Things that fall due the same time after they were added: one timer for all of them.
 *
 * Since the time is the same for all, they fall due in the order in which they came, so the first
 * one tells when the timer has to run. Adding and removing touch no timer; a timer for every
 * connection attempt would be started and cancelled for nothing nearly always.
 *
 * The event loop runs timers before it looks at sockets. So when it was held up, for however short a
 * time, what falls due may have been answered meanwhile, and has to come to light first. Otherwise one
 * long pause would make every attempt time out at once, although all endpoints had answered.
 */
export class DeadlineQueue<T> {
  readonly #clock: Clock;
  readonly #ms: number;
  readonly #due: (item: T) => void;
  readonly #afterSockets: (callback: () => void) => void;
  readonly #queue = new LinkedList<Due<T>>();
  #armed = false;

  /**
   * `due` is called with each item whose time is over. `afterSockets` calls back when the loop has
   * looked at its sockets once more: `setImmediate` does in Node, where even the shortest timer may run
   * before that. By default a short timer of the clock.
   */
  constructor(
    clock: Clock,
    ms: number,
    due: (item: T) => void,
    afterSockets: (callback: () => void) => void = (callback) => void clock.setTimer(1, callback),
  ) {
    this.#clock = clock;
    this.#ms = ms;
    this.#due = due;
    this.#afterSockets = afterSockets;
  }

  get size(): number {
    return this.#queue.size;
  }

  /** Starts the time of an item. Remove what is returned to stop it. */
  add(item: T): Deadline<T> {
    const deadline = this.#queue.add({ item, at: this.#clock.now() + this.#ms });
    if (!this.#armed) this.#arm(this.#ms);
    return deadline;
  }

  #arm(ms: number): void {
    this.#armed = true;
    this.#clock.setTimer(ms, () => this.#run());
  }

  #run(): void {
    const { first } = this.#queue;
    const late = first !== undefined && this.#clock.now() > first.item.at;
    if (late) this.#afterSockets(() => this.#runAndArm());
    else this.#runAndArm();
  }

  /** Stays armed meanwhile, so that what is added now waits for the first one's timer. */
  #runAndArm(): void {
    const wait = this.#runDue();
    if (wait === undefined) this.#armed = false;
    else this.#arm(wait);
  }

  /** Returns the time until the next one, if there is one. */
  #runDue(): number | undefined {
    const now = this.#clock.now();
    for (;;) {
      const next = this.#queue.first;
      if (next === undefined) return undefined;
      const wait = next.item.at - now;
      // Timers may run a little early: less than a millisecond is no reason for another one.
      if (wait >= 1) return wait;
      next.remove();
      this.#due(next.item.item);
    }
  }
}
