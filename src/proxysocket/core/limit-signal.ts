import { limitChanged } from '../events.ts';
import type { LimitName } from '../limits.ts';

/** Below this fraction of the limit, it no longer counts as reached; the gap prevents flapping. */
const LEFT_BELOW = 0.95;

/** Publishes a limit: when something is refused because of it, and when use falls below 95 % of it. */
export class LimitSignal {
  readonly #limit: LimitName;
  readonly #value: () => number;
  #reached = false;

  constructor(limit: LimitName, value: () => number) {
    this.#limit = limit;
    this.#value = value;
  }

  refused(): void {
    if (this.#reached) return;
    this.#reached = true;
    this.#publish();
  }

  /** Something was released; `used`: current use. */
  freed(used: number): void {
    if (used < LEFT_BELOW * this.#value()) this.left();
  }

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
