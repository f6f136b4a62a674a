/** A worker thread of the `linux` engine whose time a test decides, if it wants to. */
import { getEnvironmentData, workerData } from 'node:worker_threads';
import { PROBES } from '../../src/proxysocket/linux/probes/all.ts';
import type { WorkerStart } from '../../src/proxysocket/threads/protocol.ts';
import { runWorker } from '../../src/proxysocket/linux/worker/run.ts';
import { FollowingClock } from './following-clock.ts';
import { TIME } from './linux-time.ts';
import { almostOne } from './random.ts';
import { SMALL_BUFFERS, useSmallBuffers } from './small-buffers.ts';

if (getEnvironmentData(SMALL_BUFFERS) === true) useSmallBuffers();
const time = getEnvironmentData(TIME) as SharedArrayBuffer | undefined;
await runWorker(workerData as WorkerStart, {
  random: almostOne,
  // All of them would take longer than most tests.
  probes: PROBES.filter(({ name }) => !['transfers', 'relay', 'datagrams'].includes(name)),
  ...(time !== undefined && { clock: new FollowingClock(time) }),
});
