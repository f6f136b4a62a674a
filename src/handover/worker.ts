/** The thread that sends or receives sockets. */
import { parentPort, workerData } from 'node:worker_threads';
import { openSys } from '../proxysocket/linux/sys/sys.ts';
import { sendSockets, receiveSockets } from './exchange.ts';
import type { Job } from './thread.ts';
import { Wire, Rights } from './wire.ts';

const job = workerData as Job;
const rights = new Rights(await openSys());
const result =
  typeof job === 'string'
    ? receiveSockets(rights, job)
    : sendSockets(rights, new Wire(rights, job.fd), job);
parentPort?.postMessage(result, []);
