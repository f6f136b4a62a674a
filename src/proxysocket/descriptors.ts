import { readFileSync } from 'node:fs';
import type { DescriptorBudget } from './service-port.ts';
import { LimitSignal } from './limit-signal.ts';

/**
 * Where the system does not tell: Windows has no such limit for sockets, and elsewhere Node raises
 * the soft limit to the hard one, which is rarely below this.
 */
const UNKNOWN_LIMIT = 65_536;

/** How many descriptors the process may have: the soft limit on Linux, else a guess. */
export function processDescriptorLimit(
  read: () => string = () => readFileSync('/proc/self/limits', 'utf8'),
): number {
  let text: string;
  try {
    text = read();
  } catch {
    // Only Linux has this file.
    return UNKNOWN_LIMIT;
  }
  const soft = /^Max open files\s+(\d+|unlimited)/m.exec(text)?.[1];
  return soft === undefined || soft === 'unlimited' ? UNKNOWN_LIMIT : Number(soft);
}

/**
 * Counts the descriptors of the data path, so that the process never runs into its limit: that would
 * also fail its files, its connection to the control plane and the programs that it runs.
 *
 * Relays and sessions leave the reserve alone. Listeners may use three quarters of it, because a
 * busy service must not keep a new one from coming up. But a quarter of what is outside of the reserve
 * is never for listeners: services that nobody can connect to are of no use, and those that worked
 * must go on working when more of them come.
 */
export class ProcessDescriptors implements DescriptorBudget {
  readonly #limit: number;
  readonly #reserve: number;
  readonly #signal: LimitSignal;
  #used = 0;
  #held = 0;

  constructor(options: { limit: number; reserve: number }) {
    this.#limit = options.limit;
    this.#reserve = options.reserve;
    this.#signal = new LimitSignal('reserved-descriptors', () => this.capacity);
  }

  get used(): number {
    return this.#used;
  }

  get capacity(): number {
    return Math.max(0, this.#limit - this.#reserve - this.#held);
  }

  take(count: number): boolean {
    if (this.#used + count > this.capacity) {
      this.#signal.refused();
      return false;
    }
    this.#used += count;
    return true;
  }

  give(count: number): void {
    this.#used -= count;
    this.#signal.freed(this.#used);
  }

  /** Takes one descriptor for a listener; false when too few are left even for that. */
  hold(): boolean {
    const all = this.#used + this.#held + 1;
    const shared = this.#limit - this.#reserve;
    const most = shared - Math.floor(shared / 4);
    if (this.#held + 1 > most || all > this.#limit - this.#reserve / 4) {
      this.#signal.refused();
      return false;
    }
    this.#held += 1;
    return true;
  }

  /** Gives the descriptor of a listener back. */
  drop(): void {
    this.#held -= 1;
    this.#signal.freed(this.#used);
  }
}
