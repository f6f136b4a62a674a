import { isBuiltin } from 'node:module';
import { extname } from 'node:path';
import { threadModule } from '../util/bundle.ts';
import { callThread } from '../util/call-thread.ts';
import type { SendResult, SendOptions } from './send-sockets.ts';
import type { ReceivedSockets } from './receive-sockets.ts';

interface SendJob extends SendOptions {
  /** The connection to the new process. It stays open. */
  readonly fd: number;
}

/** What to send, or the path of a predecessor to receive from. */
export type Job = SendJob | string;

/** Sent from the thread, where an error would lose its code. */
export type Outcome =
  | { readonly result: SendResult | ReceivedSockets }
  | { readonly message: string; readonly code: string | undefined };

const MODULE = threadModule(
  'handover-worker',
  new URL(`./worker${extname(import.meta.url)}`, import.meta.url),
);

/** Whether this Node can pass descriptors: on Linux, with `node:ffi`. */
export function canHandOver(): boolean {
  return process.platform === 'linux' && isBuiltin('node:ffi');
}

/** Answers a new process. Rejects if it has ended or violates the protocol. */
export async function sendInThread(job: SendJob): Promise<SendResult> {
  return (await inThread(job)) as SendResult;
}

/** Calls the predecessor at a path. Rejects with the system's error if there is none. */
export async function receiveInThread(path: string): Promise<ReceivedSockets> {
  return (await inThread(path)) as ReceivedSockets;
}

/** The work blocks and calls the C library; neither may happen in the main thread. */
async function inThread(job: Job): Promise<SendResult | ReceivedSockets> {
  // The thread enforces its own time limit.
  const outcome = (await callThread(MODULE, {
    name: 'kpng-userspace handover',
    data: job,
  })) as Outcome;
  if ('result' in outcome) return outcome.result;
  throw Object.assign(new Error(outcome.message), { code: outcome.code });
}
