/** A worker thread of the `node` engine that a test can let die, or be unfit. */
import { getEnvironmentData, workerData } from 'node:worker_threads';
import { runNodeWorker, SOCKET_PROBES } from '../../src/proxysocket/node-worker/run.ts';
import type { WorkerStart } from '../../src/proxysocket/threads/protocol.ts';
import { systemClock } from '../../src/util/clock.ts';
import { ORDER, type Order } from './crashing-name.ts';

const order = new Int32Array(getEnvironmentData(ORDER) as SharedArrayBuffer);
const unfit = Atomics.load(order, 0) === (2 satisfies Order);
const probe = {
  name: 'weather',
  check() {
    if (unfit) throw new Error('it rains');
  },
};
await runNodeWorker(workerData as WorkerStart, {
  clock: {
    ...systemClock,
    /** Throws where nothing catches, when it is told to. */
    run() {
      if (Atomics.compareExchange(order, 0, 1 satisfies Order, 0) !== 1) return;
      setImmediate(() => {
        throw new Error('a crash');
      });
    },
  },
  probes: [...SOCKET_PROBES, probe],
});
