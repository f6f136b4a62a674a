/** So many crashes within this time, and no other worker is tried. Milliseconds. */
export const MAX_CRASHES = 3;
const WITHIN_MS = 60_000;

/** Counts the crashes of workers, to find out that there is no use in starting another one. */
export class CrashBudget {
  readonly #at: number[] = [];
  #isSpent = false;

  /** A worker has died, or did not even start. `now` in milliseconds. */
  add(now: number): void {
    this.#at.push(now);
    if (this.#at.length > MAX_CRASHES) this.#at.shift();
    const [first = now] = this.#at;
    if (this.#at.length === MAX_CRASHES && now - first <= WITHIN_MS) this.#isSpent = true;
  }

  /** Whether some came too close together, and that stays so. */
  get isSpent(): boolean {
    return this.#isSpent;
  }
}
