import { Backoff, type BackoffPolicy } from '../util/backoff.ts';
import type { Clock, Timer } from '../util/clock.ts';
import { CANARY_INTERVAL_MS, CANARY_SILENCES } from './bounds.ts';

/** Waits between repairs that do not help. */
const REPAIR_BACKOFF: BackoffPolicy = { initialMs: 1000, maxMs: 30_000, factor: 2, jitter: 0.2 };

/**
 * What came of a connection through the rules: it was accepted, it was refused at once, or nothing
 * came back.
 */
export type ProbeResult = 'alive' | 'gone' | 'silent';

/** Of the time between looks, how much is left at the least to what else there is when a look took long. */
const REST_SHARE = 0.5;

/**
 * So many repairs in a row are done without a wait, since somebody may remove the rules more than once;
 * after that something else is wrong.
 */
const QUICK_REPAIRS = 5;

export interface GuardOptions {
  readonly clock: Clock;
  readonly random: () => number;
  /** How long it is from the beginning of one look to that of the next. Milliseconds. Default 500. */
  readonly interval?: () => number;
  /** Finds out whether the rules are there. */
  readonly look: () => Promise<ProbeResult>;
  /** Done at each look that finds them. */
  readonly housekeeping: () => Promise<void>;
  /** Writes the rules anew. `first`: they were there at the last look. May reject; it is told by others. */
  readonly repair: (found: ProbeResult, first: boolean) => Promise<void>;
}

/**
 * Looks again and again whether the rules are still there, and has them repaired when they are not: at
 * once, and with growing waits when that does not help.
 */
export class Guard {
  readonly #options: GuardOptions;
  readonly #backoff: Backoff;
  #timer: Timer | undefined;
  #running: Promise<void> = Promise.resolve();
  #silences = 0;
  #repairs = 0;
  #state: 'idle' | 'watching' | 'closed' = 'idle';

  constructor(options: GuardOptions) {
    this.#options = options;
    this.#backoff = new Backoff(REPAIR_BACKOFF, options.random);
  }

  /** Begins to look. Idempotent. */
  start(): void {
    if (this.#state !== 'idle') return;
    this.#state = 'watching';
    this.#schedule(this.#interval());
  }

  #interval(): number {
    return this.#options.interval?.() ?? CANARY_INTERVAL_MS;
  }

  /** Resolves when nothing is under way any more. Idempotent. */
  async close(): Promise<void> {
    this.#state = 'closed';
    this.#timer?.cancel();
    await this.#running;
  }

  #schedule(ms: number): void {
    if (this.#state !== 'watching') return;
    this.#timer = this.#options.clock.setTimer(ms, () => {
      this.#running = this.#round().then((wait) => this.#schedule(wait));
    });
  }

  /** Looks once; resolves with the wait until the next look, and never rejects. */
  async #round(): Promise<number> {
    const begin = this.#options.clock.now();
    const found = await this.#options.look();
    if (this.#state === 'closed') return 0;
    if (found === 'alive') {
      this.#silences = 0;
      this.#repairs = 0;
      this.#backoff.reset();
      await attempt(this.#options.housekeeping());
      return this.#rest(begin);
    }
    this.#silences = found === 'silent' ? this.#silences + 1 : CANARY_SILENCES;
    if (this.#silences < CANARY_SILENCES) return this.#rest(begin);
    this.#repairs += 1;
    await attempt(this.#options.repair(found, this.#repairs === 1));
    return this.#repairs <= QUICK_REPAIRS ? this.#rest(begin) : this.#backoff.next();
  }

  /** What is left of the time between looks. What was removed while one ran has to wait until the next one. */
  #rest(begin: number): number {
    const interval = this.#interval();
    return Math.max(interval - (this.#options.clock.now() - begin), REST_SHARE * interval);
  }
}

/** Whoever fails has told so; the guard only goes on. */
async function attempt(action: Promise<void>): Promise<void> {
  await action.catch(() => undefined);
}
