import { MAX_TIMER_MS, type Clock } from '../../util/clock.ts';
import { LinkedList, ListNode } from '../../util/linked-list.ts';

/** An item in a queue while its time runs. Only the queue writes it. */
export class Deadline<T> extends ListNode<T> {
  readonly queue: DeadlineQueue<T>;
  /** When its time began, on the clock. */
  since: number;

  constructor(queue: DeadlineQueue<T>, item: T, since: number) {
    super(item);
    this.queue = queue;
    this.since = since;
  }
}

/** Items with equal timeouts, with one timer for all of them; adding, renewing and removing touch no timer. */
export class DeadlineQueue<T> extends LinkedList<T> {
  readonly ms: number;
  readonly #clock: Clock;
  readonly #due: (item: T, since: number) => void;
  readonly #grainMs: number;
  #isArmed = false;

  /**
   * `due` is called with each item that is due, and when its time began. `grainMs`: the shortest time between two checks:
   * items may be found so much later.
   */
  constructor(clock: Clock, ms: number, due: (item: T, since: number) => void, grainMs = 1) {
    super();
    this.ms = ms;
    this.#clock = clock;
    this.#due = due;
    this.#grainMs = grainMs;
  }

  override get first(): Deadline<T> | undefined {
    return super.first as Deadline<T> | undefined;
  }

  /** Starts the time of an item, or continues it. */
  override add(item: T, since = this.#clock.now()): Deadline<T> {
    const deadline = new Deadline(this, item, since);
    this.append(deadline);
    if (!this.#isArmed) this.#arm(since + this.ms - this.#clock.now());
    return deadline;
  }

  /** Starts its time again. Not once it is due or removed. */
  renew(deadline: Deadline<T>): void {
    deadline.since = this.#clock.now();
    if (deadline.next === undefined) return;
    this.unlink(deadline);
    this.append(deadline);
  }

  #arm(ms: number): void {
    this.#isArmed = true;
    this.#clock.setTimer(Math.min(ms, MAX_TIMER_MS), () => this.#run());
  }

  /** Stays armed meanwhile: a new item waits for the first one's timer. */
  #run(): void {
    const now = this.#clock.now();
    for (let next = this.first; next !== undefined; next = this.first) {
      const left = next.since + this.ms - now;
      // Timers may run a little early: less than a millisecond needs no further timer.
      if (left >= 1) {
        this.#arm(Math.max(left, this.#grainMs));
        return;
      }
      next.remove();
      this.#due(next.item, next.since);
    }
    this.#isArmed = false;
  }
}

export interface Idle<T> {
  /** Only `IdleQueues` writes it. */
  idle: Deadline<T> | undefined;
}

/** Maximum time between two checks of a queue that has items. Milliseconds. */
const MAX_GRAIN_MS = 1000;

/**
 * Finds items that are idle for too long, and the least recently used one, with a queue for each idle limit in use. An
 * item expires up to an eighth of its limit late, at most a second.
 */
export class IdleQueues<T extends Idle<T>> {
  readonly #queues = new Map<number, DeadlineQueue<T>>();
  readonly #clock: Clock;
  readonly #limitOf: (item: T) => number;
  readonly #onIdle: (item: T) => void;

  /** `limitOf`: an item's present idle limit in milliseconds, read when it is used or would expire. */
  constructor(clock: Clock, limitOf: (item: T) => number, onIdle: (item: T) => void) {
    this.#clock = clock;
    this.#limitOf = limitOf;
    this.#onIdle = onIdle;
  }

  /** Notes that an item is used now, and adds it if it is new. */
  touch(item: T): void {
    const { idle } = item;
    const limit = this.#limitOf(item);
    if (idle?.queue.ms === limit) {
      idle.queue.renew(idle);
      return;
    }
    idle?.remove();
    item.idle = this.#queueOf(limit).add(item);
  }

  remove(item: T): void {
    item.idle?.remove();
    item.idle = undefined;
  }

  /** The least recently used item of all. O(idle limits in use). */
  oldest(): T | undefined {
    let found: Deadline<T> | undefined;
    for (const { first } of this.#queues.values()) {
      if (first !== undefined && (found === undefined || first.since < found.since)) found = first;
    }
    return found?.item;
  }

  #queueOf(ms: number): DeadlineQueue<T> {
    const known = this.#queues.get(ms);
    if (known !== undefined) return known;
    for (const [limit, { size }] of this.#queues) if (size === 0) this.#queues.delete(limit);
    const due = (item: T, since: number): void => {
      const limit = this.#limitOf(item);
      item.idle = limit > ms ? this.#queueOf(limit).add(item, since) : undefined;
      if (item.idle === undefined) this.#onIdle(item);
    };
    const queue = new DeadlineQueue(this.#clock, ms, due, Math.min(ms / 8, MAX_GRAIN_MS));
    this.#queues.set(ms, queue);
    return queue;
  }
}
