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

  /** `round` resolves with the wait until the next one, in milliseconds, and never rejects. */
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

/** Waits between repairs that do not help. */
const REPAIR_BACKOFF: BackoffPolicy = { initialMs: 1000, maxMs: 30_000, factor: 2, jitter: 0.2 };

/** Result of a connection through the rules: accepted, refused at once, or no answer. */
export type ProbeResult = 'alive' | 'gone' | 'silent';

/** The least wait after a check that took long, as a part of the interval. */
const REST_SHARE = 0.5;

/** So many repairs in a row are done without a wait, as another program may remove the rules more than once. */
const QUICK_REPAIRS = 5;

export interface GuardOptions {
  readonly clock: Clock;
  readonly random: () => number;
  /** Milliseconds from the beginning of one check to that of the next. Default 500. */
  readonly interval?: () => number;
  /** Finds out whether the rules are there. */
  readonly check: () => Promise<ProbeResult>;
  /** Done at each check that finds them. */
  readonly housekeeping: () => Promise<void>;
  /** Rewrites the rules. `first`: they were present at the last check. May reject; it reports its own failures. */
  readonly repair: (found: ProbeResult, first: boolean) => Promise<void>;
}

/** Looks again and again whether the rules are there, and repairs them: at once, and with back-off when that fails. */
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

  /** Begins to check. Idempotent. */
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

/** Durations that are kept: one that took long may only have waited for other programs. */
const DURATIONS = 5;

/**
 * Compares the kernel with what was written, as a single rule only matters to its own clients. `compare` resolves
 * with the repair; undefined: nothing differs.
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
      // A tool that fails is reported where it writes.
      took ||= clock.now() - begin;
    }
    durations.push(took);
    if (durations.length > DURATIONS) durations.shift();
    const pause = Math.min(maxMs, intervalMs * Math.max(1, Math.min(...durations) / goalMs));
    const backoff = Math.min(2 ** Math.max(0, repairs - QUICK_REPAIRS), MAX_AUDIT_BACKOFF);
    return backoff * (took < pause / 2 ? pause - took : pause);
  });
}

/** The wait between looks: shorter when writing all rules takes long, so that they are back within a second. */
export class Pace {
  /** How many items there are. */
  #items = 0;
  /** Time to write one item, measured when all were written. */
  #perItemMs = 0;
  readonly #maxMs: number;

  /** `maxMs`: the wait when all is written soon. */
  constructor(maxMs: number = CANARY_INTERVAL_MS) {
    this.#maxMs = maxMs;
  }

  /** Something was written. Only a first write shows how long all of it takes. */
  note({ reason, changes }: Written, durationMs: number): void {
    for (const { before, after } of changes) {
      if (before !== undefined) this.#items -= 1;
      if (after !== undefined) this.#items += 1;
    }
    if (reason === 'start') this.#perItemMs = durationMs / Math.max(1, this.#items);
  }

  /** An even part of `maxMs` where that is long enough, so that what is done every `maxMs` falls on a check. */
  get intervalMs(): number {
    const left = Math.max(MIN_CANARY_INTERVAL_MS, REPAIR_GOAL_MS - this.#items * this.#perItemMs);
    const parts = Math.ceil(this.#maxMs / left);
    return Math.max(MIN_CANARY_INTERVAL_MS, this.#maxMs / parts);
  }
}
