import { isBuiltin } from 'node:module';
import { threadModule } from '../util/bundle.ts';
import { callThread } from '../util/call-thread.ts';
import type { SendResult, SendOptions, ReceivedSockets } from './exchange.ts';

/** What to send over the connection `fd` to a new process, or the path of a predecessor to receive from. */
export type Job = (SendOptions & { readonly fd: number }) | string;

const MODULE = threadModule('handover-worker', 'worker', import.meta.url);

/** Whether this Node can pass descriptors: on Linux, with `node:ffi`. */
export function canHandOver(): boolean {
  return process.platform === 'linux' && isBuiltin('node:ffi');
}

/** Answers a new process. Rejects if it has ended or violates the protocol. */
export async function sendInThread(job: Job): Promise<SendResult> {
  return (await inThread(job)) as SendResult;
}

/** Calls the predecessor at a path. Rejects with the system's error if there is none. */
export async function receiveInThread(path: string): Promise<ReceivedSockets> {
  return (await inThread(path)) as ReceivedSockets;
}

/** The work blocks and calls the C library; neither may happen in the main thread. */
function inThread(job: Job): Promise<unknown> {
  // The thread enforces its own time limit.
  return callThread(MODULE, { name: 'kpng-userspace handover', data: job });
}
