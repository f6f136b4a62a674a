/** A worker thread of a pool that a test can let die, or be unfit: its module, and what instructs it. */
import {
  getEnvironmentData,
  isMainThread,
  setEnvironmentData,
  workerData,
} from 'node:worker_threads';
import { UnfitError } from '../../src/proxysocket/linux/sys/library.ts';
import { LoopClock } from '../../src/proxysocket/linux/loop.ts';
import type { WorkerStart } from '../../src/proxysocket/pool/protocol.ts';

/** Under which name a test instructs its workers. */
const ORDER = 'kpng-userspace test order';

/** 0: live; 2: fail a probe; 3: hang at the next turn; -n: die at the nth turn of the loop from now. */
type Order = 0 | 2 | 3 | -1 | -2 | -3;

if (isMainThread) setEnvironmentData(ORDER, new SharedArrayBuffer(4));
const current = new Int32Array(getEnvironmentData(ORDER) as SharedArrayBuffer);

/** Instructs the workers of this process what to do from now on; one of them dies once. */
export function order(value: Order): void {
  Atomics.store(current, 0, value);
}

/** Until one of them dies. */
export function turnsLeft(): number {
  return -Atomics.load(current, 0);
}

if (!isMainThread) {
  const run = Reflect.get(LoopClock.prototype, 'run');
  LoopClock.prototype.run = function (this: LoopClock): void {
    const left = turnsLeft();
    if (left > 0) Atomics.add(current, 0, 1);
    if (left === 1) throw new Error('a crash');
    while (Atomics.load(current, 0) === (3 satisfies Order)) Math.random();
    run.call(this);
  };
  const isUnfit = Atomics.load(current, 0) === (2 satisfies Order);
  if (isUnfit) throw new UnfitError('weather', new Error('it rains'));
  Object.assign(workerData as WorkerStart, { isProven: true });
  await import('../../src/proxysocket/pool/thread.ts');
}
