import type { Clock, Timer } from '../../util/clock.ts';
import { AUDIT_GOAL_MS, MAX_AUDIT_BACKOFF } from '../bounds.ts';

export interface AuditOptions {
  readonly clock: Clock;
  /** Milliseconds from the end of one comparison to the next, at the least. */
  readonly intervalMs: number;
  /** Compares; resolves with what differs, or undefined. */
  readonly compare: () => Promise<string | undefined>;
  /** Compares again while nothing is being written, and repairs. */
  readonly repair: () => Promise<void>;
}

/**
 * Compares what is in the kernel with what was written, slowly: the canary notices within a second that
 * chains or tables are gone, but a single rule or element only matters to its own clients.
 *
 * A comparison may run while rules are being written, so what it finds is looked at once more. One that keeps
 * finding differences becomes seldom: repairing does not help then.
 */
export class Audit {
  readonly #options: AuditOptions;
  #timer: Timer | undefined;
  #running: Promise<void> = Promise.resolve();
  #state: 'idle' | 'running' | 'closed' = 'idle';
  #repairs = 0;

  constructor(options: AuditOptions) {
    this.#options = options;
  }

  /** Idempotent. */
  start(): void {
    if (this.#state !== 'idle') return;
    this.#state = 'running';
    this.#schedule(this.#options.intervalMs);
  }

  /** Resolves when nothing is under way any more. Idempotent. */
  async close(): Promise<void> {
    this.#state = 'closed';
    this.#timer?.cancel();
    await this.#running;
  }

  #schedule(ms: number): void {
    if (this.#state !== 'running') return;
    this.#timer = this.#options.clock.setTimer(ms, () => {
      this.#running = this.#round().then((wait) => this.#schedule(wait));
    });
  }

  async #round(): Promise<number> {
    const { clock, intervalMs, compare, repair } = this.#options;
    const begin = clock.now();
    try {
      if ((await compare()) === undefined) this.#repairs = 0;
      else if (this.#state === 'running') {
        this.#repairs += 1;
        await repair();
      }
    } catch {
      // A tool that fails is reported where it writes.
    }
    const pause = intervalMs * Math.max(1, (clock.now() - begin) / AUDIT_GOAL_MS);
    return pause * Math.min(2 ** Math.max(0, this.#repairs - 1), MAX_AUDIT_BACKOFF);
  }
}
