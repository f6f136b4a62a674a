import { CANARY_INTERVAL_MS, MIN_CANARY_INTERVAL_MS, REPAIR_GOAL_MS } from '../bounds.ts';
import type { Written } from './rule-set.ts';

/**
 * How long to wait between looks at the rules: the longer it takes to write them all, the less, so that they are
 * back within a second of their removal.
 */
export class Pace {
  /** How many items there are. */
  #items = 0;
  /** What writing one of them has taken when all were written. */
  #perItemMs = 0;
  readonly #maxMs: number;

  /** `maxMs`: the wait when all is written soon. */
  constructor(maxMs: number = CANARY_INTERVAL_MS) {
    this.#maxMs = maxMs;
  }

  /** Something was written. Only a first write tells how long all of it takes. */
  note({ reason, changes }: Written, durationMs: number): void {
    for (const { before, after } of changes) {
      if (before !== undefined) this.#items -= 1;
      if (after !== undefined) this.#items += 1;
    }
    if (reason === 'start') this.#perItemMs = durationMs / Math.max(1, this.#items);
  }

  /** An even part of `maxMs` where that is long enough, so that what is done every `maxMs` falls on a look. */
  get intervalMs(): number {
    const left = Math.max(MIN_CANARY_INTERVAL_MS, REPAIR_GOAL_MS - this.#items * this.#perItemMs);
    const parts = Math.ceil(this.#maxMs / left);
    return Math.max(MIN_CANARY_INTERVAL_MS, this.#maxMs / parts);
  }
}
