import type { Clock, Timer } from '../util/clock.ts';

export interface LogLimiterOptions {
  readonly clock: Clock;
  /** Maximum burst of lines. Default 10. */
  readonly burst?: number;
  /** Lines per second after that. Default 1. */
  readonly perSecond?: number;
  /** Maximum time before suppressed lines are reported. Milliseconds, default 10 000. */
  readonly reportAfterMs?: number;
  /** Called with the number of suppressed lines if no further line came for a while. */
  readonly report: (kind: string, suppressed: number) => void;
}

interface Bucket {
  tokens: number;
  at: number;
  suppressed: number;
  timer: Timer | undefined;
}

/**
 * Keeps one kind of line from flooding the log: a token bucket for each kind. The kinds are the messages of the log
 * table, so there are few. Suppressed lines are always counted: the next line has their number, and if none follows,
 * a report does.
 */
export class LogLimiter {
  readonly #clock: Clock;
  readonly #burst: number;
  readonly #perMs: number;
  readonly #reportAfterMs: number;
  readonly #report: (kind: string, suppressed: number) => void;
  readonly #buckets = new Map<string, Bucket>();

  constructor(options: LogLimiterOptions) {
    this.#clock = options.clock;
    this.#burst = options.burst ?? 10;
    this.#perMs = (options.perSecond ?? 1) / 1000;
    this.#reportAfterMs = options.reportAfterMs ?? 10_000;
    this.#report = options.report;
  }

  /** Undefined: suppress the line. A number: write it, with the number of lines suppressed before. */
  take(kind: string): number | undefined {
    const now = this.#clock.now();
    let bucket = this.#buckets.get(kind);
    if (bucket === undefined) {
      bucket = { tokens: this.#burst, at: now, suppressed: 0, timer: undefined };
      this.#buckets.set(kind, bucket);
    }
    bucket.tokens = Math.min(this.#burst, bucket.tokens + (now - bucket.at) * this.#perMs);
    bucket.at = now;
    if (bucket.tokens < 1) {
      bucket.suppressed += 1;
      bucket.timer ??= this.#clock.setTimer(this.#reportAfterMs, () => this.#flush(kind, bucket));
      return undefined;
    }
    bucket.tokens -= 1;
    const { suppressed } = bucket;
    bucket.suppressed = 0;
    return suppressed;
  }

  /** Reports suppressed lines and stops the timers. */
  close(): void {
    for (const [kind, bucket] of this.#buckets) this.#flush(kind, bucket);
  }

  #flush(kind: string, bucket: Bucket): void {
    bucket.timer?.cancel();
    bucket.timer = undefined;
    if (bucket.suppressed === 0) return;
    this.#report(kind, bucket.suppressed);
    bucket.suppressed = 0;
  }
}
