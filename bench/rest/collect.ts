/** Loaded into the proxy before its own code: collects garbage whenever it is sent USR2. */
import { isMainThread } from 'node:worker_threads';

if (isMainThread) {
  process.on('SIGUSR2', () => {
    globalThis.gc?.();
  });
}
