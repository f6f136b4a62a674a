import { MAX_TIMER_MS, type Clock, type Timer } from '../../util/clock.ts';
import { LinkedList, type ListNode } from '../../util/linked-list.ts';

/** An item with a running deadline. */
export type Deadline<T> = ListNode<Due<T>>;

interface Due<T> {
  readonly item: T;
  readonly at: number;
}

/**
 * Items with equal timeouts, in order of arrival, with one timer for all of them. Adding and removing touch no timer.
 *
 * The event loop runs timers before it polls sockets. After a pause, due items may have been answered already, so the
 * sockets are polled first; otherwise one long pause would time out every attempt at once.
 */
export class DeadlineQueue<T> {
  readonly #clock: Clock;
  readonly #ms: number;
  readonly #due: (item: T) => void;
  readonly #afterSockets: (callback: () => void) => void;
  readonly #queue = new LinkedList<Due<T>>();
  #armed = false;

  /**
   * `due` is called with each item that is due. `afterSockets` calls back after the loop's next poll of its
   * sockets: `setImmediate` does in Node, where even the shortest timer may run before that. By default a short
   * timer of the clock.
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

  /** Starts the time of an item. Remove the returned entry to stop it. */
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

  /** Stays armed: a new item waits for the first one's timer. */
  #runAndArm(): void {
    const wait = this.#runDue();
    if (wait === undefined) this.#armed = false;
    else this.#arm(wait);
  }

  /** Returns the time until the next item is due. */
  #runDue(): number | undefined {
    const now = this.#clock.now();
    for (;;) {
      const next = this.#queue.first;
      if (next === undefined) return undefined;
      const wait = next.item.at - now;
      // Timers may run a little early: less than a millisecond needs no further timer.
      if (wait >= 1) return wait;
      next.remove();
      this.#due(next.item.item);
    }
  }
}

/** What the lanes keep in each entry. Only `IdleLanes` writes these. */
export interface IdleEntry<E extends IdleEntry<E>> {
  lane: IdleLane<E> | undefined;
  older: E | undefined;
  newer: E | undefined;
  /** When it was last used, on the clock. */
  usedAt: number;
}

/** Entries with the same idle limit, least recently used first, which is also the order of expiry. */
export interface IdleLane<E extends IdleEntry<E>> {
  readonly idleMs: number;
  oldest: E | undefined;
  newest: E | undefined;
}

/** Maximum time between two checks of a lane that still has entries. */
const MAX_GRAIN_MS = 1000;

/**
 * Finds entries that are idle for too long, and the least recently used one.
 *
 * There is one lane for each idle limit in use. Using an entry moves it to the end of its lane, so
 * expiry looks only at the head: nothing is scanned, and no entry has a timer. A lane has one, until it
 * is found empty. An entry expires up to an eighth of its limit late, at most a second.
 */
export class IdleLanes<E extends IdleEntry<E>> {
  readonly #lanes = new Map<number, IdleLane<E>>();
  readonly #clock: Clock;
  readonly #limitOf: (entry: E) => number;
  readonly #onIdle: (entry: E) => void;

  /**
   * `limitOf` returns the present idle limit of an entry in milliseconds; a change counts when the
   * entry is next used, or when it would expire. `onIdle` has to remove the entry.
   */
  constructor(clock: Clock, limitOf: (entry: E) => number, onIdle: (entry: E) => void) {
    this.#clock = clock;
    this.#limitOf = limitOf;
    this.#onIdle = onIdle;
  }

  /** Notes that an entry is used now, and adds it if it is new. */
  touch(entry: E): void {
    entry.usedAt = this.#clock.now();
    const idleMs = this.#limitOf(entry);
    const { lane } = entry;
    if (lane !== undefined && lane.idleMs === idleMs) {
      if (lane.newest === entry) return;
      unlink(lane, entry);
      append(lane, entry);
      return;
    }
    this.remove(entry);
    append(this.#laneOf(idleMs), entry);
  }

  remove(entry: E): void {
    const { lane } = entry;
    if (lane === undefined) return;
    unlink(lane, entry);
    entry.lane = undefined;
  }

  /** The least recently used entry of all. O(idle limits in use). */
  oldest(): E | undefined {
    let found: E | undefined;
    for (const { oldest } of this.#lanes.values()) {
      if (oldest !== undefined && (found === undefined || oldest.usedAt < found.usedAt)) {
        found = oldest;
      }
    }
    return found;
  }

  #laneOf(idleMs: number): IdleLane<E> {
    let lane = this.#lanes.get(idleMs);
    if (lane === undefined) {
      lane = { idleMs, oldest: undefined, newest: undefined };
      this.#lanes.set(idleMs, lane);
      this.#arm(lane, idleMs);
    }
    return lane;
  }

  #arm(lane: IdleLane<E>, ms: number): void {
    this.#clock.setTimer(Math.min(ms, MAX_TIMER_MS), () => this.#expire(lane));
  }

  #expire(lane: IdleLane<E>): void {
    const { idleMs } = lane;
    const now = this.#clock.now();
    for (;;) {
      const entry = lane.oldest;
      if (entry === undefined) {
        // Not before: a lane that empties and fills with each connection would start and cancel a timer for each.
        this.#lanes.delete(idleMs);
        return;
      }
      const left = entry.usedAt + idleMs - now;
      if (left > 0) {
        this.#arm(lane, Math.max(left, Math.min(idleMs / 8, MAX_GRAIN_MS)));
        return;
      }
      const limit = this.#limitOf(entry);
      if (limit > idleMs) {
        this.remove(entry);
        append(this.#laneOf(limit), entry);
      } else this.#onIdle(entry);
    }
  }
}

function append<E extends IdleEntry<E>>(lane: IdleLane<E>, entry: E): void {
  entry.lane = lane;
  entry.older = lane.newest;
  if (lane.newest === undefined) lane.oldest = entry;
  else lane.newest.newer = entry;
  lane.newest = entry;
}

function unlink<E extends IdleEntry<E>>(lane: IdleLane<E>, entry: E): void {
  const { older, newer } = entry;
  if (older === undefined) lane.oldest = newer;
  else older.newer = newer;
  if (newer === undefined) lane.newest = older;
  else newer.older = older;
  entry.older = undefined;
  entry.newer = undefined;
}

/** Pause between two batches of retries, so that thousands of them do not delay the relays. Milliseconds. */
const PAUSE_MS = 10;
/** Interval of the checks of all plans, when nothing is overdue. Milliseconds. */
const GRAIN_MS = 100;

/**
 * Retries, each at its time or up to a tenth of a second later, with one timer and a limit on concurrent ones.
 *
 * A due item is passed on once and then has to be added again or deleted.
 */
export class RetrySchedule<T> {
  readonly #clock: Clock;
  readonly #batchSize: number;
  readonly #retry: (due: readonly T[]) => void;
  readonly #plans = new Map<T, number>();
  #timer: { readonly at: number; readonly timer: Timer } | undefined;
  #ranAt = -Infinity;

  constructor(clock: Clock, batchSize: number, retry: (due: readonly T[]) => void) {
    this.#clock = clock;
    this.#batchSize = batchSize;
    this.#retry = retry;
  }

  get size(): number {
    return this.#plans.size;
  }

  items(): readonly T[] {
    return [...this.#plans.keys()];
  }

  /** Schedules an item for a time of the clock, replacing an earlier schedule. */
  set(item: T, at: number): void {
    this.#plans.set(item, at);
    this.#arm(Math.max(at, this.#ranAt + GRAIN_MS, this.#clock.now() + PAUSE_MS));
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
    this.#ranAt = now;
    const due: (readonly [T, number])[] = [];
    let next = Infinity;
    for (const plan of this.#plans) {
      if (plan[1] <= now) due.push(plan);
      else next = Math.min(next, plan[1]);
    }
    const batch = due.toSorted(([, one], [, other]) => one - other).slice(0, this.#batchSize);
    for (const [item] of batch) this.#plans.delete(item);
    if (batch.length < due.length) this.#arm(now + PAUSE_MS);
    else if (next < Infinity) this.#arm(Math.max(next, now + GRAIN_MS));
    if (batch.length > 0) this.#retry(batch.map(([item]) => item));
  }
}
