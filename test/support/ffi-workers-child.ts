/** Starts so many threads that make system calls, one after the other, and says how many have ended. */
import { Worker } from 'node:worker_threads';
import { compileInPlace } from '../../src/proxysocket/pool/worker.ts';
import { WAYS_TO_END } from './ffi-ways.ts';

const MODULE = new URL('ffi-worker.ts', import.meta.url);

const count = Number(process.argv[2]);
let ended = 0;
for (; ended < count; ended += 1) {
  const how = WAYS_TO_END[ended % WAYS_TO_END.length];
  // V8 begins at a number of calls that is not known, somewhere in between.
  const calls = 200 + Math.floor((20_000 * ended) / count);
  const worker = compileInPlace(
    () =>
      new Worker(MODULE, {
        workerData: { calls, how },
        execArgv: ['--disable-warning=ExperimentalWarning'],
      }),
  );
  worker.on('error', () => undefined);
  await new Promise((resolve) => worker.once('exit', resolve));
}
process.stdout.write(`${ended} ended`);
