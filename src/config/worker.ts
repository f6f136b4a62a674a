/** The thread that takes a changed configuration file apart; thread.ts starts it. */
import { parentPort, workerData } from 'node:worker_threads';
import { readDocuments } from './documents.ts';

parentPort?.postMessage(readDocuments(workerData as string), []);
