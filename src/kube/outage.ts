import { Backoff, type BackoffPolicy } from '../util/backoff.ts';
import type { Clock, Timer } from '../util/clock.ts';

/**
 * Spaces out attempts to reach a server while it is unreachable: all requests to it wait, and one at a time tries,
 * with growing delays. The first success releases the others.
 */
export class Outage {
  readonly #clock: Clock;
  readonly #backoff: Backoff;
  readonly #waiting: (() => void)[] = [];
  /** Up: no one waits. Waiting: until the timer. Probing: one is trying. */
  #state: 'up' | 'waiting' | 'probing' = 'up';
  #timer: Timer | undefined;
  #retryAt = 0;

  constructor(clock: Clock, policy: BackoffPolicy, random: () => number) {
    this.#clock = clock;
    this.#backoff = new Backoff(policy, random);
  }

  /** Resolves when the caller may try. The caller has to report the result. */
  async turn(signal: AbortSignal): Promise<void> {
    if (this.#state === 'up' || signal.aborted) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const go = (): void => resolve();
    this.#waiting.push(go);
    signal.addEventListener('abort', go);
    this.#allowOneAttempt();
    await promise;
    signal.removeEventListener('abort', go);
  }

  answered(): void {
    if (this.#state === 'up') return;
    this.#state = 'up';
    this.#timer?.cancel();
    this.#backoff.reset();
    for (const go of this.#waiting.splice(0)) go();
  }

  /** The server could not be reached. Returns the delay until the next attempt in milliseconds. */
  failed(): number {
    const now = this.#clock.now();
    // Requests already in flight when it went down add no information.
    if (this.#state === 'waiting') return Math.max(0, this.#retryAt - now);
    const wait = this.#backoff.next();
    this.#state = 'waiting';
    this.#retryAt = now + wait;
    this.#timer = this.#clock.setTimer(wait, () => {
      this.#timer = undefined;
      this.#allowOneAttempt();
    });
    return wait;
  }

  #allowOneAttempt(): void {
    if (this.#state !== 'waiting' || this.#timer !== undefined) return;
    const go = this.#waiting.shift();
    if (go === undefined) return;
    this.#state = 'probing';
    go();
  }
}
