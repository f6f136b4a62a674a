import { LimitSignal } from '../../core/limit-signal.ts';

const LARGE = 1024 * 1024;
const MEDIUM = 256 * 1024;

/** Free buffers that are kept for the next flow, of each size. More are left to the collector. */
const MAX_FREE = 16;

/**
 * Private read buffers for flows that move much data, within a budget.
 *
 * With 1 MiB a bulk flow costs a third of the CPU of `pipe()`, with 256 KiB about half. Three
 * quarters of the budget go out as 1 MiB buffers, the rest as 256 KiB ones, so that a late flow gets
 * something, too. A flow that gets none goes on with the shared buffer: slower, but just as right.
 */
export class BulkBuffers {
  readonly #budget: number;
  readonly #signal: LimitSignal;
  readonly #freeLarge: Buffer[] = [];
  readonly #freeMedium: Buffer[] = [];
  #large = 0;
  #medium = 0;

  /** `budget` in bytes. */
  constructor(budget: number) {
    this.#budget = budget;
    this.#signal = new LimitSignal('bulk-buffer-budget', () => budget);
  }

  /** Bytes in use by flows. */
  get used(): number {
    return this.#large + this.#medium;
  }

  take(): Buffer | undefined {
    if (this.#large + LARGE <= this.#budget * 0.75 && this.used + LARGE <= this.#budget) {
      this.#large += LARGE;
      return this.#freeLarge.pop() ?? Buffer.allocUnsafeSlow(LARGE);
    }
    if (this.used + MEDIUM <= this.#budget) {
      this.#medium += MEDIUM;
      return this.#freeMedium.pop() ?? Buffer.allocUnsafeSlow(MEDIUM);
    }
    this.#signal.refused();
    return undefined;
  }

  /** Nobody may read into the buffer or write from it any more. */
  give(buffer: Buffer): void {
    const large = buffer.length === LARGE;
    if (large) this.#large -= LARGE;
    else this.#medium -= MEDIUM;
    const free = large ? this.#freeLarge : this.#freeMedium;
    if (free.length < MAX_FREE) free.push(buffer);
    this.#signal.freed(this.used);
  }
}
