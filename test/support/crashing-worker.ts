/** A worker thread of a pool that a test can let die, or be unfit: its module, and what instructs it. */
import {
  getEnvironmentData,
  isMainThread,
  setEnvironmentData,
  workerData,
} from 'node:worker_threads';
import { openProbed, UnfitError } from '../../src/proxysocket/linux/probes.ts';
import { LoopClock } from '../../src/proxysocket/linux/loop.ts';
import type { WorkerStart } from '../../src/proxysocket/pool/protocol.ts';
import { runWorker } from '../../src/proxysocket/pool/thread.ts';

/** Under which name a test instructs its workers. */
const ORDER = 'kpng-userspace test order';

/** 0: live; 1: die at the next turn of the loop; 2: fail a probe; 3: hang at the next turn. */
type Order = 0 | 1 | 2 | 3;

if (isMainThread) setEnvironmentData(ORDER, new SharedArrayBuffer(4));
const current = new Int32Array(getEnvironmentData(ORDER) as SharedArrayBuffer);

/** Instructs the workers of this process what to do from now on; one of them dies once. */
export function order(value: Order): void {
  Atomics.store(current, 0, value);
}

/** Throws where nothing catches, on request. */
class CrashingClock extends LoopClock {
  override run(): void {
    if (Atomics.compareExchange(current, 0, 1 satisfies Order, 0) === 1) throw new Error('a crash');
    while (Atomics.load(current, 0) === (3 satisfies Order)) Math.random();
    super.run();
  }
}

if (!isMainThread) {
  const isUnfit = Atomics.load(current, 0) === (2 satisfies Order);
  await runWorker(workerData as WorkerStart, {
    clock: new CrashingClock(),
    async openSys(ledger) {
      if (isUnfit) throw new UnfitError('weather', new Error('it rains'));
      return openProbed(ledger, true);
    },
  });
}
