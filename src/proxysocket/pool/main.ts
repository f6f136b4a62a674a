/** A worker thread of the `linux` engine. */
import { workerData } from 'node:worker_threads';
import type { WorkerStart } from './protocol.ts';
import { runWorker } from './thread.ts';

await runWorker(workerData as WorkerStart);
