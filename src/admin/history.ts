import type { HistoryView, Traffic } from './views.ts';

/** Samples that a history keeps: five minutes. */
export const HISTORY_SAMPLES = 150;
/** Time between two samples. Milliseconds. */
export const SAMPLE_MS = 2000;

const SERIES = ['connections', 'bytesIn', 'bytesOut', 'errors', 'active'] as const;

/** The last samples of some numbers, in memory of a fixed size: 3,000 bytes. */
export class History {
  readonly #values = new Float32Array(HISTORY_SAMPLES * SERIES.length);
  #next = 0;
  #filled = 0;

  add(rates: Traffic, active: number): void {
    const values = { ...rates, active };
    const at = this.#next * SERIES.length;
    for (const [index, name] of SERIES.entries()) this.#values[at + index] = values[name];
    this.#next = (this.#next + 1) % HISTORY_SAMPLES;
    this.#filled = Math.min(this.#filled + 1, HISTORY_SAMPLES);
  }

  view(service: string | null): HistoryView {
    const series = SERIES.map((name, index) => [name, this.#series(index)]);
    const named = Object.fromEntries(series) as Record<(typeof SERIES)[number], number[]>;
    return { service, intervalSeconds: SAMPLE_MS / 1000, ...named };
  }

  /** Bytes per second in both directions over the whole time, as the mean of each of `points` parts. */
  spark(points: number): number[] {
    const part = HISTORY_SAMPLES / points;
    const sums = Array.from({ length: points }, () => 0);
    for (let age = 0; age < this.#filled; age += 1) {
      const at = this.#offset(age);
      const bytes = (this.#values[at + 1] ?? 0) + (this.#values[at + 2] ?? 0);
      const point = points - 1 - Math.floor(age / part);
      sums[point] = (sums[point] ?? 0) + bytes / part;
    }
    return sums.map(Math.round);
  }

  /** Rounded to the resolution of the plot, for a short page. */
  #series(index: number): number[] {
    const list: number[] = [];
    for (let age = this.#filled - 1; age >= 0; age -= 1) {
      const value = this.#values[this.#offset(age) + index] ?? 0;
      list.push(value >= 100 ? Math.round(value) : Math.round(value * 10) / 10);
    }
    return list;
  }

  /** Position of the sample of a given age; 0 is the newest. */
  #offset(age: number): number {
    return ((this.#next - 1 - age + 2 * HISTORY_SAMPLES) % HISTORY_SAMPLES) * SERIES.length;
  }
}
