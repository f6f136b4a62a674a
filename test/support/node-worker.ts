/** A worker thread of the `node` engine whose time a test decides, if it wants to. */
import { getEnvironmentData, workerData } from 'node:worker_threads';
import { runNodeWorker } from '../../src/proxysocket/node-worker/run.ts';
import type { WorkerStart } from '../../src/proxysocket/threads/protocol.ts';
import { FollowingClock } from './following-clock.ts';
import { TIME } from './linux-time.ts';
import { almostOne } from './random.ts';
import { SMALL_BUFFERS, useSmallBuffers } from './small-buffers.ts';

if (getEnvironmentData(SMALL_BUFFERS) === true) useSmallBuffers();
const time = getEnvironmentData(TIME) as SharedArrayBuffer | undefined;
await runNodeWorker(workerData as WorkerStart, {
  random: almostOne,
  ...(time !== undefined && { clock: new FollowingClock(time) }),
});
