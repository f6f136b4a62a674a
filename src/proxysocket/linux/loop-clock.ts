import { MAX_TIMER_MS, type Clock, type Timer } from '../../util/clock.ts';

interface Entry {
  readonly at: number;
  readonly callback: () => void;
}

/**
 * The clock of a loop that blocks, whose timers run between its turns.
 *
 * There are few timers: whatever falls due in large numbers stands in a queue of equal times, which
 * has one. So they are simply looked through.
 */
export class LoopClock implements Clock {
  readonly #read: () => number;
  readonly #timers = new Set<Entry>();
  #now: number;
  #next = Infinity;

  /** `read` returns the time in milliseconds, which must not go back. */
  constructor(read: () => number = () => performance.now()) {
    this.#read = read;
    this.#now = read();
  }

  /** The time at which the present turn began: asking is free. */
  now(): number {
    return this.#now;
  }

  setTimer(ms: number, callback: () => void): Timer {
    const entry: Entry = { at: this.#now + ms, callback };
    this.#timers.add(entry);
    if (entry.at < this.#next) this.#next = entry.at;
    return {
      cancel: () => {
        this.#timers.delete(entry);
      },
    };
  }

  /** How long a wait may take until the next timer: whole milliseconds, -1 when there is none. */
  waitMs(): number {
    if (this.#timers.size === 0) return -1;
    const ms = Math.ceil(this.#next - this.#read());
    return Math.min(Math.max(0, ms), MAX_TIMER_MS);
  }

  /** To be called after every wait, before anything is looked at. */
  tick(): void {
    this.#now = this.#read();
  }

  /** Runs what is due, in order of time. What is set meanwhile has to wait for the next call. */
  run(): void {
    if (this.#now < this.#next) return;
    const due = [...this.#timers].filter(({ at }) => at <= this.#now);
    due.sort((one, other) => one.at - other.at);
    for (const entry of due) if (this.#timers.delete(entry)) entry.callback();
    this.#next = Infinity;
    for (const { at } of this.#timers) if (at < this.#next) this.#next = at;
  }
}
