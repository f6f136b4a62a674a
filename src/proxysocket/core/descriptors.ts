import { readFileSync } from 'node:fs';
import { DEFAULT_LIMITS, type LimitName } from '../limits.ts';
import type { Protocol } from '../spec.ts';
import { LimitSignal } from './limit-signal.ts';

/**
 * Where the system reports none: Windows has none for sockets; elsewhere Node raises the soft limit to the hard one.
 */
const UNKNOWN_LIMIT = 65_536;

/** The process's file descriptor limit: the soft limit on Linux, else a guess. */
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

/** The minimum for the program itself, with some connections for metrics and health. */
const OWN_USE = 64;

/** The default reserve: the usual number, or a quarter of a low limit; enough for the program, at most half. */
export function defaultReserve(limit: number): number {
  const quarter = Math.max(Math.floor(limit / 4), OWN_USE);
  return Math.min(DEFAULT_LIMITS.reservedDescriptors, quarter, Math.floor(limit / 2));
}

/**
 * Counts the descriptors of the data path, so that the process never reaches its limit, which would also fail its
 * files, its control plane and the programs that it runs. Relays and sessions do not use the reserve. Listeners may use
 * three quarters of it, but never the last quarter of the others, which is left to connections. While there are UDP
 * listeners, an eighth is kept for UDP sessions, because TCP connections may last for days. (UDP sessions keep to half,
 * see `UdpAcceptor`.)
 */
export class ProcessDescriptors {
  readonly #limit: number;
  readonly #reserve: number;
  readonly #signals: Readonly<Record<Protocol | 'listeners', LimitSignal>>;
  readonly #used: Record<Protocol, number> = { TCP: 0, UDP: 0 };
  readonly #held: Record<Protocol, number> = { TCP: 0, UDP: 0 };
  readonly #usedElsewhere: () => number;

  /** `usedElsewhere`: by the relays and sessions of other threads that share the limit. */
  constructor(options: { limit: number; reserve: number; usedElsewhere?: () => number }) {
    this.#limit = options.limit;
    this.#reserve = options.reserve;
    this.#usedElsewhere = options.usedElsewhere ?? (() => 0);
    const signal = (most: () => number) => new LimitSignal('reserved-descriptors', most);
    this.#signals = {
      TCP: signal(() => this.#limitOf('TCP')),
      UDP: signal(() => this.#limitOf('UDP')),
      listeners: signal(() => this.#mostListeners),
    };
  }

  get used(): number {
    return this.#used.TCP + this.#used.UDP + this.#usedElsewhere();
  }

  get capacity(): number {
    return Math.max(0, this.#shared - this.#listeners);
  }

  /**
   * Takes descriptors of relays or sessions; false if that would use the reserve or UDP's share, without an event for an
   * optional use.
   */
  acquire(count: number, protocol: Protocol = 'TCP', isOptional = false): boolean {
    if (this.#used[protocol] + count > this.#limitOf(protocol)) {
      if (!isOptional) this.#signals[protocol].refused();
      return false;
    }
    this.#used[protocol] += count;
    return true;
  }

  release(count: number, protocol: Protocol = 'TCP'): void {
    this.#used[protocol] -= count;
    this.#signals.TCP.freed(this.#used.TCP);
    this.#signals.UDP.freed(this.#used.UDP);
  }

  /** Takes the descriptors of a listener; false if too few are left. */
  acquireListener(protocol: Protocol = 'TCP'): boolean {
    if (this.#listeners >= this.#mostListeners) {
      this.#signals.listeners.refused();
      return false;
    }
    this.#held[protocol] += 1;
    return true;
  }

  keepListeners(protocol: Protocol, count: number): void {
    this.#held[protocol] += count;
  }

  releaseListener(protocol: Protocol = 'TCP', count = 1): void {
    this.#held[protocol] -= count;
    this.#signals.listeners.freed(this.#listeners);
    this.release(0);
  }

  get #listeners(): number {
    return this.#held.TCP + this.#held.UDP;
  }

  get #shared(): number {
    return this.#limit - this.#reserve;
  }

  get #mostListeners(): number {
    const ofShared = this.#shared - Math.floor(this.#shared / 4);
    return Math.min(ofShared, Math.floor(this.#limit - this.#reserve / 4) - this.used);
  }

  #limitOf(protocol: Protocol): number {
    if (protocol === 'UDP') return Math.max(0, this.capacity - this.#used.TCP);
    const share = this.#held.UDP === 0 ? 0 : Math.ceil(this.capacity / 8);
    return Math.max(0, this.capacity - Math.max(share, this.#used.UDP));
  }
}

/** TCP: one for the client and one for the endpoint. */
const DESCRIPTORS: Readonly<Record<Protocol, number>> = { TCP: 2, UDP: 1 };

/** Admits the connections or sessions of an engine up to a limit, and as far as there are descriptors. */
export class Gate {
  readonly #protocol: Protocol;
  readonly #most: () => number;
  readonly #descriptors: ProcessDescriptors;
  readonly #signal: LimitSignal;
  #inside = 0;
  #emptied: PromiseWithResolvers<void> | undefined;

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
    if (this.#inside > 0 || this.#emptied === undefined) return;
    this.#emptied.resolve();
    this.#emptied = undefined;
  }

  async empty(): Promise<void> {
    if (this.#inside > 0) await (this.#emptied ??= Promise.withResolvers<void>()).promise;
  }
}
