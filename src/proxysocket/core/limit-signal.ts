import type { Clock } from '../../util/clock.ts';
import { limitChanged } from '../events.ts';
import type { LimitName } from '../limits.ts';

/** Below this part of the limit it counts as left again, so that a load right at it does not flap. */
const LEFT_BELOW = 0.95;

/**
 * Publishes one limit: an event when something is refused because of it, another one when the use
 * has fallen below 95 % of it.
 */
export class LimitSignal {
  readonly #limit: LimitName;
  readonly #value: () => number;
  #reached = false;

  /** The value may change, as that of the descriptors does. */
  constructor(limit: LimitName, value: () => number) {
    this.#limit = limit;
    this.#value = value;
  }

  get reached(): boolean {
    return this.#reached;
  }

  /** Something was refused. */
  refused(): void {
    if (this.#reached) return;
    this.#reached = true;
    this.#publish();
  }

  /** Something was released and `used` is still in use. */
  freed(used: number): void {
    if (used < LEFT_BELOW * this.#value()) this.left();
  }

  /** The limit is no longer reached. */
  left(): void {
    if (!this.#reached) return;
    this.#reached = false;
    this.#publish();
  }

  #publish(): void {
    if (!limitChanged.hasSubscribers) return;
    limitChanged.publish({ limit: this.#limit, value: this.#value(), reached: this.#reached });
  }
}

/** After this long without a refusal, a limit with many users counts as left. Milliseconds. */
const QUIET_MS = 1000;

/**
 * Publishes a limit that each of many has, such as the queue of each socket: an event when the first
 * one refuses something, another one when none has for a second.
 */
export class SharedLimitSignal {
  readonly #clock: Clock;
  readonly #signal: LimitSignal;
  #refusedAt = 0;

  constructor(clock: Clock, limit: LimitName, value: number) {
    this.#clock = clock;
    this.#signal = new LimitSignal(limit, () => value);
  }

  /** One of them has refused something. */
  refused(): void {
    this.#refusedAt = this.#clock.now();
    if (this.#signal.reached) return;
    this.#signal.refused();
    this.#clock.setTimer(QUIET_MS, () => this.#check());
  }

  #check(): void {
    const rest = this.#refusedAt + QUIET_MS - this.#clock.now();
    // Timers may run a little early: less than a millisecond is no reason for another one.
    if (rest >= 1) this.#clock.setTimer(rest, () => this.#check());
    else this.#signal.left();
  }
}
