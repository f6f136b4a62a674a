/** Counts what a load does: everything for the total, and the time after the warm-up for the rate. */
import type { LoadResult } from './load.ts';

/** Share of the time that warms up. */
const WARM_UP = 0.2;
/** Latencies that are kept; above it only every other one counts, and so on. */
const MAX_SAMPLES = 1 << 18;

export class Meter {
  /** Increase it by what was done; plain, since it is on the path that is measured. */
  total = 0;
  /** When the load has to end, in milliseconds of `performance.now()`. */
  readonly end: number;
  #warmAt = 0;
  #totalAtWarm = 0;
  readonly #samples = new Float64Array(MAX_SAMPLES);
  #count = 0;
  #stride = 1;
  #seen = 0;

  /** Starts counting; `onEnd` is called once when the time is over. */
  constructor(seconds: number, onEnd: () => void) {
    const now = performance.now();
    this.end = now + seconds * 1000;
    this.#warmAt = now;
    setTimeout(
      () => {
        this.#warmAt = performance.now();
        this.#totalAtWarm = this.total;
      },
      seconds * 1000 * WARM_UP,
    );
    setTimeout(onEnd, seconds * 1000);
  }

  /** Notes the time that one answer took. Milliseconds. */
  sample(ms: number): void {
    this.#seen += 1;
    if (this.#seen % this.#stride !== 0) return;
    if (this.#count === MAX_SAMPLES) {
      for (let i = 0; i < MAX_SAMPLES / 2; i += 1) this.#samples[i] = this.#samples[2 * i] ?? 0;
      this.#count = MAX_SAMPLES / 2;
      this.#stride *= 2;
    }
    this.#samples[this.#count] = ms;
    this.#count += 1;
  }

  /** The result at this moment. */
  result(lost = 0): LoadResult {
    const seconds = (performance.now() - this.#warmAt) / 1000;
    const rate = (this.total - this.#totalAtWarm) / seconds;
    if (this.#count === 0) return { total: this.total, rate };
    const sorted = this.#samples.subarray(0, this.#count).sort();
    const at = (share: number): number =>
      Math.round((sorted[Math.floor((this.#count - 1) * share)] ?? 0) * 1000);
    return { total: this.total, rate, latency: { p50: at(0.5), p99: at(0.99) }, lost };
  }
}
