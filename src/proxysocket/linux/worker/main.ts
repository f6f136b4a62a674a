/** A worker thread of the `linux` engine. */
import { setTimeout } from 'node:timers/promises';
import { workerData } from 'node:worker_threads';
import type { WorkerStart } from '../../threads/protocol.ts';
import { runWorker } from './run.ts';

/**
 * V8 optimises system calls in a thread of its own, and crashes when the worker whose calls they are is gone
 * before it is through (seen with Node 26.10, on a busy machine). One such piece of work takes milliseconds.
 */
const SETTLE_MS = 20;

await runWorker(workerData as WorkerStart);
await setTimeout(SETTLE_MS);
