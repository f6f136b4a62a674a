/** kube-proxy's buckets: two quarters of a second, each second of a minute, then coarser up to 5 minutes. Seconds. */
export const PROGRAMMING_BUCKETS = [
  ...linear(0.25, 0.25, 2),
  ...linear(1, 1, 59),
  ...linear(60, 5, 12),
  ...linear(120, 30, 7),
];

function linear(start: number, width: number, count: number): number[] {
  return Array.from({ length: count }, (_, index) => start + width * index);
}

/** Maximum number of pending changes; more are not measured. */
const MAX_WAITING = 10_000;
/** A change without a change set for this long does not concern this node. Milliseconds. */
const NO_EFFECT_MS = 1000;

/**
 * Measures the time from a change in the cluster until it is applied here. All times are milliseconds since the
 * epoch.
 */
export class ProgrammingTimes {
  #waiting: { readonly at: number; readonly receivedAt: number }[] = [];
  /** Times of the changes that are being applied. */
  #applying: number[] = [];
  #appliedAt = Number.NEGATIVE_INFINITY;

  /** Endpoints were changed in the cluster at these times, by the clocks there. */
  triggered(times: readonly number[], now: number): void {
    for (const at of times) {
      if (this.#waiting.length < MAX_WAITING) this.#waiting.push({ at, receivedAt: now });
    }
  }

  /** A change set has been received. */
  received(now: number): void {
    const arrived = this.#waiting.filter(
      ({ receivedAt }) => now - Math.max(receivedAt, this.#appliedAt) < NO_EFFECT_MS,
    );
    this.#applying = [...this.#applying, ...arrived.map(({ at }) => at)].slice(0, MAX_WAITING);
    this.#waiting = [];
  }

  /** All received changes are applied. Returns how long each took, in milliseconds. */
  applied(now: number): number[] {
    this.#appliedAt = now;
    const made = this.#applying;
    this.#applying = [];
    return made.map((at) => Math.max(0, now - at));
  }
}
