import type { LimitName } from '../limits.ts';
import type { Protocol } from '../spec.ts';
import type { ProcessDescriptors } from './descriptors.ts';
import { LimitSignal } from './limit-signal.ts';

/** TCP: one for the client and one for the endpoint. */
const DESCRIPTORS: Readonly<Record<Protocol, number>> = { TCP: 2, UDP: 1 };

/** Admits the connections or sessions of an engine up to a limit, and as far as there are descriptors. */
export class Gate {
  readonly #protocol: Protocol;
  readonly #most: () => number;
  readonly #descriptors: ProcessDescriptors;
  readonly #signal: LimitSignal;
  #inside = 0;
  #waiting: (() => void)[] = [];

  /** `most`: the limit, which may change. */
  constructor(
    protocol: Protocol,
    limit: LimitName,
    most: () => number,
    descriptors: ProcessDescriptors,
  ) {
    this.#protocol = protocol;
    this.#most = most;
    this.#descriptors = descriptors;
    this.#signal = new LimitSignal(limit, most);
  }

  enter(): boolean {
    if (this.#inside >= this.#most()) {
      this.#signal.refused();
      return false;
    }
    if (!this.#descriptors.acquire(DESCRIPTORS[this.#protocol], this.#protocol)) return false;
    this.#inside += 1;
    return true;
  }

  /** `isReused`: another one enters at once, so the limit is still reached. */
  leave(isReused = false): void {
    this.#inside -= 1;
    this.#descriptors.release(DESCRIPTORS[this.#protocol], this.#protocol);
    if (!isReused) this.#signal.freed(this.#inside);
    if (this.#inside > 0) return;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }

  /** Resolves when none is inside. */
  async empty(): Promise<void> {
    if (this.#inside === 0) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.push(resolve);
    await promise;
  }
}
