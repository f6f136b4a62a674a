/** A worker thread of the `linux` engine. */
import { workerData } from 'node:worker_threads';
import type { WorkerStart } from '../../threads/protocol.ts';
import { runWorker } from './run.ts';

await runWorker(workerData as WorkerStart);
