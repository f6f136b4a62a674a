/** A worker thread of the `linux` engine whose time a test decides, if it wants to. */
import { getEnvironmentData, workerData } from 'node:worker_threads';
import { PROBES } from '../../src/proxysocket/linux/probes/all.ts';
import type { WorkerStart } from '../../src/proxysocket/linux/worker/protocol.ts';
import { runWorker, type TurnClock } from '../../src/proxysocket/linux/worker/run.ts';
import { FakeClock } from './fake-clock.ts';
import { TIME } from './linux-time.ts';
import { almostOne } from './random.ts';
import { SMALL_BUFFERS, useSmallBuffers } from './small-buffers.ts';

/** Follows the fake clock of the test, one timer after another. */
class FollowingClock extends FakeClock implements TurnClock {
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

if (getEnvironmentData(SMALL_BUFFERS) === true) useSmallBuffers();
const time = getEnvironmentData(TIME) as SharedArrayBuffer | undefined;
await runWorker(workerData as WorkerStart, {
  random: almostOne,
  // All of them would take longer than most tests.
  probes: PROBES.filter(({ name }) => !['transfers', 'relay', 'datagrams'].includes(name)),
  ...(time !== undefined && { clock: new FollowingClock(time) }),
});
