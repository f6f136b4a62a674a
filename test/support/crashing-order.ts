import { setEnvironmentData } from 'node:worker_threads';
import { ORDER, type Order } from './crashing-name.ts';

const memory = new Int32Array(new SharedArrayBuffer(4));
setEnvironmentData(ORDER, memory.buffer);

/** Instructs the workers of this process what to do from now on. A end is died once. */
export function order(value: Order): void {
  Atomics.store(memory, 0, value);
}
