import type { TurnClock } from '../../src/proxysocket/linux/worker/run.ts';
import { FakeClock } from './fake-clock.ts';

/** Follows the fake clock of the test, one timer after another. */
export class FollowingClock extends FakeClock implements TurnClock {
  readonly #target: Float64Array;

  constructor(target: SharedArrayBuffer) {
    super();
    this.#target = new Float64Array(target);
  }

  waitMs(): number {
    return -1;
  }

  tick(): void {
    // Time stands still until the test lets it pass.
  }

  run(): void {
    const target = this.#target[0] ?? 0;
    if (target === Infinity) throw new Error('the test has ended the worker');
    if (target > this.now()) this.advance(target - this.now());
  }
}
