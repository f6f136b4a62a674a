/** The thread that sends or receives sockets. */
import { parentPort, workerData } from 'node:worker_threads';
import { openRights } from './rights.ts';
import { give, type Given } from './give.ts';
import { take, type Taken } from './take.ts';
import type { Job, Outcome } from './thread.ts';
import { Wire } from './wire.ts';

async function carryOut(job: Job): Promise<Given | Taken> {
  const rights = await openRights();
  return job.kind === 'take'
    ? take(rights, job)
    : give(rights, new Wire(rights, job.fd, job.limitMs), job);
}

let outcome: Outcome;
try {
  outcome = { result: await carryOut(workerData as Job) };
} catch (error) {
  const { message, code } = error as NodeJS.ErrnoException;
  outcome = { message, code };
}
parentPort?.postMessage(outcome, []);
