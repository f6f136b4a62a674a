import { Backoff, type BackoffPolicy } from '../util/backoff.ts';
import type { Clock } from '../util/clock.ts';
import { CANARY_INTERVAL_MS, CANARY_SILENCES } from './bounds.ts';
import { Repeater } from './repeater.ts';

/** Waits between repairs that do not help. */
const REPAIR_BACKOFF: BackoffPolicy = { initialMs: 1000, maxMs: 30_000, factor: 2, jitter: 0.2 };

/**
 * What came of a connection through the rules: it was accepted, it was refused at once, or nothing
 * came back.
 */
export type ProbeResult = 'alive' | 'gone' | 'silent';

/** The least wait after a look that took long, as a part of the interval. */
const REST_SHARE = 0.5;

/** So many repairs in a row are done without a wait, as another program may remove the rules more than once. */
const QUICK_REPAIRS = 5;

export interface GuardOptions {
  readonly clock: Clock;
  readonly random: () => number;
  /** Milliseconds from the beginning of one look to that of the next. Default 500. */
  readonly interval?: () => number;
  /** Finds out whether the rules are there. */
  readonly look: () => Promise<ProbeResult>;
  /** Done at each look that finds them. */
  readonly housekeeping: () => Promise<void>;
  /** Writes the rules again. `first`: they were there at the last look. May reject; it reports by itself. */
  readonly repair: (found: ProbeResult, first: boolean) => Promise<void>;
}

/** Looks again and again whether the rules are there, and repairs them: at once, and with back-off when that fails. */
export class Guard {
  readonly #options: GuardOptions;
  readonly #backoff: Backoff;
  readonly #repeater: Repeater;
  #silences = 0;
  #repairs = 0;

  constructor(options: GuardOptions) {
    this.#options = options;
    this.#backoff = new Backoff(REPAIR_BACKOFF, options.random);
    this.#repeater = new Repeater(options.clock, () => this.#round());
  }

  /** Begins to look. Idempotent. */
  start(): void {
    this.#repeater.start(this.#interval());
  }

  /** Resolves when nothing is under way any more. Idempotent. */
  close(): Promise<void> {
    return this.#repeater.close();
  }

  async #round(): Promise<number> {
    const { clock, look, housekeeping, repair } = this.#options;
    const begin = clock.now();
    const found = await look();
    if (this.#repeater.isClosed) return 0;
    if (found === 'alive') {
      this.#silences = 0;
      this.#repairs = 0;
      this.#backoff.reset();
      await attempt(housekeeping());
      return this.#rest(begin);
    }
    this.#silences = found === 'silent' ? this.#silences + 1 : CANARY_SILENCES;
    if (this.#silences < CANARY_SILENCES) return this.#rest(begin);
    this.#repairs += 1;
    await attempt(repair(found, this.#repairs === 1));
    return this.#repairs <= QUICK_REPAIRS ? this.#rest(begin) : this.#backoff.next();
  }

  #rest(begin: number): number {
    const interval = this.#interval();
    return Math.max(interval - (this.#options.clock.now() - begin), REST_SHARE * interval);
  }

  #interval(): number {
    return this.#options.interval?.() ?? CANARY_INTERVAL_MS;
  }
}

/** Errors are already reported by the callee. */
async function attempt(action: Promise<void>): Promise<void> {
  await action.catch(() => undefined);
}
