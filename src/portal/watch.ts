import { Backoff, type BackoffPolicy } from '../util/backoff.ts';
import type { Clock, Timer } from '../util/clock.ts';
import {
  type AuditPolicy,
  CANARY_INTERVAL_MS,
  CANARY_MISSES,
  MAX_AUDIT_BACKOFF,
  MIN_CANARY_INTERVAL_MS,
  REPAIR_GOAL_MS,
} from './bounds.ts';
import type { Written } from './rules/rule-set.ts';

/** Repeats an action, each time after the delay that the last run returned. */
export class Repeater {
  readonly #clock: Clock;
  readonly #round: () => Promise<number>;
  #timer: Timer | undefined;
  #running: Promise<void> = Promise.resolve();
  #state: 'idle' | 'running' | 'closed' = 'idle';

  /** `round` resolves with the delay until the next run, in milliseconds, and never rejects. */
  constructor(clock: Clock, round: () => Promise<number>) {
    this.#clock = clock;
    this.#round = round;
  }

  get isClosed(): boolean {
    return this.#state === 'closed';
  }

  /** Idempotent. Milliseconds. */
  start(firstWait: number): void {
    if (this.#state !== 'idle') return;
    this.#state = 'running';
    this.#schedule(firstWait);
  }

  /** Resolves when no operation is pending. Idempotent. */
  async close(): Promise<void> {
    this.#state = 'closed';
    this.#timer?.cancel();
    await this.#running;
  }

  #schedule(ms: number): void {
    if (this.#state !== 'running') return;
    this.#timer = this.#clock.setTimer(ms, () => {
      this.#running = this.#round().then((wait) => this.#schedule(wait));
    });
  }
}

/** Delays between repairs that do not help. */
const REPAIR_BACKOFF: BackoffPolicy = { initialMs: 1000, maxMs: 30_000, factor: 2, jitter: 0.2 };

/** The result of a connection through the rules: accepted, refused at once, or no answer. */
export type ProbeResult = 'alive' | 'gone' | 'silent';

/** Minimum pause after a slow check, as a fraction of the interval. */
const REST_SHARE = 0.5;

/** Repairs in a row without a delay, as another program may remove the rules repeatedly. */
const QUICK_REPAIRS = 5;

export interface GuardOptions {
  readonly clock: Clock;
  readonly random: () => number;
  /** Milliseconds from the start of one check to the start of the next. Default 500. */
  readonly interval?: () => number;
  /** Checks that the rules exist. */
  readonly check: () => Promise<ProbeResult>;
  /** Runs after each successful check. */
  readonly housekeeping: () => Promise<void>;
  /** Rewrites the rules. `first`: they were present at the last check. May reject; it reports its own failures. */
  readonly repair: (found: ProbeResult, first: boolean) => Promise<void>;
}

/** Repeatedly checks that the rules exist, and repairs them: at once, and with back-off if that fails. */
export class Guard {
  readonly #options: GuardOptions;
  readonly #backoff: Backoff;
  readonly #repeater: Repeater;
  #misses = 0;
  #repairs = 0;

  constructor(options: GuardOptions) {
    this.#options = options;
    this.#backoff = new Backoff(REPAIR_BACKOFF, options.random);
    this.#repeater = new Repeater(options.clock, () => this.#round());
  }

  /** Starts checking. Idempotent. */
  start(): void {
    this.#repeater.start(this.#interval());
  }

  /** Resolves when no operation is pending. Idempotent. */
  close(): Promise<void> {
    return this.#repeater.close();
  }

  async #round(): Promise<number> {
    const { clock, check, housekeeping, repair } = this.#options;
    const begin = clock.now();
    const found = await check();
    if (this.#repeater.isClosed) return 0;
    if (found === 'alive') {
      this.#misses = 0;
      this.#repairs = 0;
      this.#backoff.reset();
      await attempt(housekeeping());
      return this.#rest(begin);
    }
    this.#misses = found === 'silent' ? this.#misses + 1 : CANARY_MISSES;
    if (this.#misses < CANARY_MISSES) return this.#rest(begin);
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

/** Number of recent durations: a single long one may only have waited for other programs. */
const DURATIONS = 5;

/**
 * Compares the kernel with the last write, since a missing rule only affects its own clients. `compare` resolves with
 * the repair; undefined: no difference.
 */
export function auditor(
  clock: Clock,
  { intervalMs, goalMs, maxMs }: AuditPolicy,
  compare: () => Promise<(() => Promise<void>) | undefined>,
): Repeater {
  const durations: number[] = [];
  let repairs = 0;
  return new Repeater(clock, async () => {
    const begin = clock.now();
    let took = 0;
    try {
      const repair = await compare();
      took = clock.now() - begin;
      repairs = repair === undefined ? 0 : repairs + 1;
      await repair?.();
    } catch {
      // The tool's failure is reported on the next write.
      took ||= clock.now() - begin;
    }
    durations.push(took);
    if (durations.length > DURATIONS) durations.shift();
    const pause = Math.min(maxMs, intervalMs * Math.max(1, Math.min(...durations) / goalMs));
    const backoff = Math.min(2 ** Math.max(0, repairs - QUICK_REPAIRS), MAX_AUDIT_BACKOFF);
    return backoff * (took < pause / 2 ? pause - took : pause);
  });
}

/**
 * The interval between checks: shorter if writing all rules takes long, so that they are restored within a second.
 */
export class Pace {
  /** Number of items. */
  #items = 0;
  /** Time to write one item, measured when all were written. */
  #perItemMs = 0;
  readonly #maxMs: number;

  /** `maxMs`: the interval if writing is fast. */
  constructor(maxMs: number = CANARY_INTERVAL_MS) {
    this.#maxMs = maxMs;
  }

  /** Records a write. Only a first write shows how long everything takes. */
  note({ reason, changes }: Written, durationMs: number): void {
    for (const { before, after } of changes) {
      if (before !== undefined) this.#items -= 1;
      if (after !== undefined) this.#items += 1;
    }
    if (reason === 'start') this.#perItemMs = durationMs / Math.max(1, this.#items);
  }

  /** A whole fraction of `maxMs`, if long enough, so that work every `maxMs` coincides with a check. */
  get intervalMs(): number {
    const left = Math.max(MIN_CANARY_INTERVAL_MS, REPAIR_GOAL_MS - this.#items * this.#perItemMs);
    const parts = Math.ceil(this.#maxMs / left);
    return Math.max(MIN_CANARY_INTERVAL_MS, this.#maxMs / parts);
  }
}
