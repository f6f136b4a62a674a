import type { Clock } from '../../util/clock.ts';
import { limitChanged } from '../events.ts';
import type { LimitName } from '../limits.ts';
import { DeadlineQueue, type Deadline } from './timers.ts';

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

/** After this long without a refusal, a shared limit no longer counts as reached. Milliseconds. */
const QUIET_MS = 1000;

/** Publishes a limit that many objects have: at the first refusal, and after a second without one. */
export class SharedLimitSignal extends LimitSignal {
  readonly #quiet: DeadlineQueue<LimitSignal>;
  #deadline: Deadline<LimitSignal> | undefined;

  constructor(clock: Clock, limit: LimitName, value: number) {
    super(limit, () => value);
    this.#quiet = new DeadlineQueue(clock, QUIET_MS, (signal) => signal.left());
  }

  override refused(): void {
    super.refused();
    this.#deadline?.remove();
    this.#deadline = this.#quiet.add(this);
  }
}
