/** A thread that makes system calls until V8 is about to optimise them, and ends in the middle. `workerData` says how. */
import { workerData } from 'node:worker_threads';
import { importFfi, openLibrary } from '../../src/proxysocket/linux/sys/library.ts';
import type { WAYS_TO_END } from './ffi-ways.ts';

const { calls, how } = workerData as {
  readonly calls: number;
  readonly how: (typeof WAYS_TO_END)[number];
};
const { c } = openLibrary(await importFfi());
for (let call = 0; call < calls; call += 1) {
  c.close(-1);
  c.read(-1, 0n, 0);
  c.write(-1, 0n, 0);
  c.shutdown(-1, 0);
}
if (how === 'throw') throw new Error('the end');
if (how === 'exit') process.exit();
