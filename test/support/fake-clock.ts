import type { Clock, Timer } from '../../src/util/clock.ts';

/** A clock that stands still until advanced. */
export class FakeClock implements Clock {
  #now = 0;
  #timers = new Set<{ at: number; callback: () => void }>();

  now(): number {
    return this.#now;
  }

  setTimer(ms: number, callback: () => void): Timer {
    const timer = { at: this.#now + ms, callback };
    this.#timers.add(timer);
    return { cancel: () => this.#timers.delete(timer) };
  }

  /** Lets `ms` pass and runs what falls due, in order. */
  advance(ms: number): void {
    const end = this.#now + ms;
    for (;;) {
      let next: { at: number; callback: () => void } | undefined;
      for (const timer of this.#timers) {
        if (timer.at <= end && (next === undefined || timer.at < next.at)) next = timer;
      }
      if (next === undefined) break;
      this.#timers.delete(next);
      this.#now = next.at;
      next.callback();
    }
    this.#now = end;
  }

  /** Lets `ms` pass at once, as a blocked event loop does: what falls due runs late, and once. */
  block(ms: number): void {
    this.#now += ms;
    const due = [...this.#timers].filter(({ at }) => at <= this.#now);
    for (const timer of due) if (this.#timers.delete(timer)) timer.callback();
  }

  /** How many timers are waiting. */
  get pending(): number {
    return this.#timers.size;
  }
}

/** Waits take no time, and are counted. */
export class HastyClock implements Clock {
  passed = 0;

  now(): number {
    return this.passed;
  }

  setTimer(ms: number, callback: () => void): Timer {
    this.passed += ms;
    setImmediate(callback);
    return { cancel: () => {} };
  }
}
