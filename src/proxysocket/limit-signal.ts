import { limitChanged } from './events.ts';
import type { LimitName } from './limits.ts';

/** Below this part of the limit it counts as left again, so that a load right at it does not flap. */
const LEFT_BELOW = 0.95;

/**
 * Tells about one limit: an event when something is refused because of it, another one when the use
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

  /** Something was given back and `used` is left in use. */
  freed(used: number): void {
    if (!this.#reached || used >= LEFT_BELOW * this.#value()) return;
    this.#reached = false;
    this.#publish();
  }

  #publish(): void {
    if (!limitChanged.hasSubscribers) return;
    limitChanged.publish({ limit: this.#limit, value: this.#value(), reached: this.#reached });
  }
}
