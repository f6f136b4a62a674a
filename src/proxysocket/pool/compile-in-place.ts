import { setFlagsFromString } from 'node:v8';
import type { Worker } from 'node:worker_threads';

/** Workers that have been created and do not run yet. */
let starting = 0;

/**
 * Starts a worker in whose thread V8 optimises functions where they run, not in a thread of its own.
 *
 * With Node 26.10 the process is killed by SIGSEGV or SIGTRAP when a thread ends, in whatever way, while its
 * calls of `node:ffi` are being optimised in another: Node frees what the optimiser still looks at. V8 reads
 * the flag once for each thread, before it runs any code; the threads that are there keep to what they have
 * read. The price is a few milliseconds now and then while the worker is young.
 *
 * @throws what `create` throws.
 */
export function compileInPlace(create: () => Worker): Worker {
  starting += 1;
  setFlagsFromString('--no-concurrent-recompilation');
  let isStarting = true;
  const started = (): void => {
    if (!isStarting) return;
    isStarting = false;
    starting -= 1;
    if (starting === 0) setFlagsFromString('--concurrent-recompilation');
  };
  try {
    const worker = create();
    worker.once('online', started);
    worker.once('exit', started);
    return worker;
  } catch (error) {
    started();
    throw error;
  }
}
