import { isBuiltin } from 'node:module';
import { threadModule } from '../util/bundle.ts';
import { callThread } from '../util/call-thread.ts';
import type { SendResult, SendOptions, ReceivedSockets } from './exchange.ts';

/** What to send over the connection `fd` to a new process. */
type SendJob = SendOptions & { readonly fd: number };

/** The same, or the path of a predecessor to receive from. */
export type Job = SendJob | string;

const MODULE = threadModule('handover-worker', 'worker', import.meta.url);

/** Whether this Node can pass descriptors: on Linux, with `node:ffi`. */
export function canHandOver(): boolean {
  return process.platform === 'linux' && isBuiltin('node:ffi');
}

/**
 * Answers a new process, or calls the predecessor at a path, in a thread, which may block and call the C library, and
 * enforces its own time limit. Rejects if the other process has ended or violates the protocol, and with the system's
 * error if there is none.
 */
export function runInThread(job: SendJob): Promise<SendResult>;
export function runInThread(job: string): Promise<ReceivedSockets>;
export function runInThread(job: Job): Promise<unknown> {
  return callThread(MODULE, { name: 'kpng-userspace handover', data: job });
}
