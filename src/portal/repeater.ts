import type { Clock, Timer } from '../util/clock.ts';

/** Does something again and again, each time after the wait that the last time has asked for. */
export class Repeater {
  readonly #clock: Clock;
  readonly #round: () => Promise<number>;
  #timer: Timer | undefined;
  #running: Promise<void> = Promise.resolve();
  #state: 'idle' | 'running' | 'closed' = 'idle';

  /** `round` resolves with the wait until the next one, in milliseconds, and never rejects. */
  constructor(clock: Clock, round: () => Promise<number>) {
    this.#clock = clock;
    this.#round = round;
  }

  get isClosed(): boolean {
    return this.#state === 'closed';
  }

  /** Idempotent. Milliseconds. */
  start(firstWait: number): void {
    if (this.#state !== 'idle') return;
    this.#state = 'running';
    this.#schedule(firstWait);
  }

  /** Resolves when nothing is under way any more. Idempotent. */
  async close(): Promise<void> {
    this.#state = 'closed';
    this.#timer?.cancel();
    await this.#running;
  }

  #schedule(ms: number): void {
    if (this.#state !== 'running') return;
    this.#timer = this.#clock.setTimer(ms, () => {
      this.#running = this.#round().then((wait) => this.#schedule(wait));
    });
  }
}
