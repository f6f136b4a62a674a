/** The thread that sends or receives sockets. */
import { parentPort, workerData } from 'node:worker_threads';
import { openRights } from './rights.ts';
import { sendSockets, type SendResult } from './send-sockets.ts';
import { receiveSockets, type ReceivedSockets } from './receive-sockets.ts';
import type { Job, Outcome } from './thread.ts';
import { Wire } from './wire.ts';

async function carryOut(job: Job): Promise<SendResult | ReceivedSockets> {
  const rights = await openRights();
  return typeof job === 'string'
    ? receiveSockets(rights, job)
    : sendSockets(rights, new Wire(rights, job.fd), job);
}

let outcome: Outcome;
try {
  outcome = { result: await carryOut(workerData as Job) };
} catch (error) {
  const { message, code } = error as NodeJS.ErrnoException;
  outcome = { message, code };
}
parentPort?.postMessage(outcome, []);
