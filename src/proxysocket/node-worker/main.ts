/** A worker thread of the `node` engine. */
import { workerData } from 'node:worker_threads';
import type { WorkerStart } from '../threads/protocol.ts';
import { runNodeWorker } from './run.ts';

await runNodeWorker(workerData as WorkerStart);
