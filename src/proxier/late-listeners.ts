import type { Clock, Timer } from '../util/clock.ts';

/** How long a listener stays open after the rules no longer redirect to it. Milliseconds. */
export const LINGER_MS = 2_000;

/** Maximum number of lingering listeners; beyond it, the oldest close early. */
export const MAX_LINGERING = 1_024;

/**
 * Closes listeners some time after the rules have changed: a redirected connection may still be in its handshake,
 * or retransmit its SYN a second later, and would be refused or reset.
 */
export class LateClosings {
  readonly #clock: Clock;
  readonly #closeAll: (names: readonly string[]) => Promise<void>;
  /** When each service port is due, in order of arrival. */
  readonly #due = new Map<string, number>();
  #timer: Timer | undefined;

  /** `close`: closes unneeded listeners of service ports; must not reject. */
  constructor(clock: Clock, close: (names: readonly string[]) => Promise<void>) {
    this.#clock = clock;
    this.#closeAll = close;
  }

  /** Adds service ports; those already waiting keep their time. */
  add(names: Iterable<string>): void {
    const due = this.#clock.now() + LINGER_MS;
    for (const name of names) if (!this.#due.has(name)) this.#due.set(name, due);
    this.#schedule();
  }

  /** A service port has changed: the wait for its unneeded listeners starts over. */
  forget(name: string): void {
    this.#due.delete(name);
  }

  /** Idempotent. */
  stop(): void {
    this.#due.clear();
    this.#timer?.cancel();
  }

  #schedule(): void {
    this.#timer?.cancel();
    const [first] = this.#due.values();
    if (first === undefined) return;
    const left = this.#due.size > MAX_LINGERING ? 0 : first - this.#clock.now();
    this.#timer = this.#clock.setTimer(Math.max(0, left), () => void this.#close());
  }

  async #close(): Promise<void> {
    const now = this.#clock.now();
    const surplus = this.#due.size - MAX_LINGERING;
    const names: string[] = [];
    for (const [name, due] of this.#due) {
      if (due > now && names.length >= surplus) break;
      names.push(name);
    }
    for (const name of names) this.#due.delete(name);
    this.#schedule();
    await this.#closeAll(names);
  }
}
