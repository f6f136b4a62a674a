export interface BackoffPolicy {
  readonly initialMs: number;
  /** Longest wait, without the jitter. Milliseconds. */
  readonly maxMs: number;
  /** Factor between one wait and the next. */
  readonly factor: number;
  /** Share of the wait by which it varies, up or down: 0.2 spreads 10 s over 8 s to 12 s. */
  readonly jitter: number;
}

/** From one second to half a minute; the spread keeps a cluster's nodes from coming back in step. */
export const DEFAULT_BACKOFF: BackoffPolicy = {
  initialMs: 1000,
  maxMs: 30_000,
  factor: 1.6,
  jitter: 0.2,
};

/** Exponential back-off. `random` returns 0 to below 1, as Math.random does. */
export class Backoff {
  readonly #policy: BackoffPolicy;
  readonly #random: () => number;
  #next: number;

  constructor(policy: BackoffPolicy, random: () => number) {
    this.#policy = policy;
    this.#random = random;
    this.#next = policy.initialMs;
  }

  /** How long to wait now, in milliseconds; the next wait will be longer. */
  next(): number {
    const { maxMs, factor, jitter } = this.#policy;
    const wait = Math.min(this.#next, maxMs);
    this.#next = Math.min(wait * factor, maxMs);
    return wait * (1 + jitter * (2 * this.#random() - 1));
  }

  /** Success: the next wait is the first one again. */
  reset(): void {
    this.#next = this.#policy.initialMs;
  }
}
