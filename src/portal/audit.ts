import type { Clock, Timer } from '../util/clock.ts';
import { type AuditPolicy, MAX_AUDIT_BACKOFF } from './bounds.ts';

/** Number of recent durations: a single long one may only have waited for other programs. Before, no pause grows. */
const DURATIONS = 5;

/** Repairs in a row without a delay, as another program may remove things repeatedly. */
const QUICK_REPAIRS = 5;

/** Minimum pause after a slow check, as a fraction of the interval. */
const REST_SHARE = 0.5;

export interface AuditOptions {
  readonly clock: Clock;
  /** Intervals from the start of one check to the start of the next. */
  readonly policy: AuditPolicy;
  /** Resolves with the repair of the damage found; undefined: none. May reject, after reporting why. */
  readonly check: () => Promise<(() => Promise<void>) | undefined>;
}

/** Repeats a check, and repairs the damage that it finds: at once, and with back-off if that does not help. */
export class Audit {
  readonly #options: AuditOptions;
  readonly #durations: number[] = [];
  #repairs = 0;
  #timer: Timer | undefined;
  #running: Promise<void> = Promise.resolve();
  #state: 'idle' | 'running' | 'closed' = 'idle';

  constructor(options: AuditOptions) {
    this.#options = options;
  }

  /** Idempotent. */
  start(): void {
    if (this.#state !== 'idle') return;
    this.#state = 'running';
    this.#schedule(this.#options.policy.intervalMs);
  }

  /** Resolves when no operation is pending. Idempotent. */
  async close(): Promise<void> {
    this.#state = 'closed';
    this.#timer?.cancel();
    await this.#running;
  }

  #schedule(ms: number): void {
    if (this.#state !== 'running') return;
    this.#timer = this.#options.clock.setTimer(ms, () => {
      this.#running = this.#round().then((wait) => this.#schedule(wait));
    });
  }

  /** Resolves with the delay until the next round. */
  async #round(): Promise<number> {
    const { clock, check } = this.#options;
    const begin = clock.now();
    let took: number | undefined;
    try {
      const repair = await check();
      took = clock.now() - begin;
      this.#repairs = repair === undefined ? 0 : this.#repairs + 1;
      if (this.#state === 'running') await repair?.();
    } catch {
      // Reported by the check, or by the write of the repair.
    }
    this.#durations.push(took ?? clock.now() - begin);
    if (this.#durations.length > DURATIONS) this.#durations.shift();
    const { intervalMs, goalMs, maxMs } = this.#options.policy;
    const slowness = this.#durations.length < DURATIONS ? 0 : Math.min(...this.#durations) / goalMs;
    const pause = Math.min(maxMs, intervalMs * Math.max(1, slowness));
    const backoff = Math.min(2 ** Math.max(0, this.#repairs - QUICK_REPAIRS), MAX_AUDIT_BACKOFF);
    return backoff * Math.max(pause - (clock.now() - begin), REST_SHARE * pause);
  }
}
