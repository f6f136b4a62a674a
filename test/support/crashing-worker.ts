/** A worker thread of a pool that a test can let die, or be unfit. */
import { getEnvironmentData, workerData } from 'node:worker_threads';
import { openProbed, ProbeFailure } from '../../src/proxysocket/linux/probes.ts';
import { LoopClock } from '../../src/proxysocket/linux/loop.ts';
import type { WorkerStart } from '../../src/proxysocket/pool/protocol.ts';
import { runWorker } from '../../src/proxysocket/pool/thread.ts';
import { ORDER, type Order } from './crashing-name.ts';

const order = new Int32Array(getEnvironmentData(ORDER) as SharedArrayBuffer);

/** Throws where nothing catches, on request. */
class CrashingClock extends LoopClock {
  override run(): void {
    if (Atomics.compareExchange(order, 0, 1 satisfies Order, 0) === 1) throw new Error('a crash');
    while (Atomics.load(order, 0) === (3 satisfies Order)) Math.random();
    super.run();
  }
}

const isUnfit = Atomics.load(order, 0) === (2 satisfies Order);
await runWorker(workerData as WorkerStart, {
  clock: new CrashingClock(),
  async openSys(ledger) {
    if (isUnfit) throw new ProbeFailure('weather', new Error('it rains'));
    return openProbed(ledger, true);
  },
});
