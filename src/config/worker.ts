/** The thread that parses a changed configuration file; read.ts starts it. */
import { parentPort, workerData } from 'node:worker_threads';
import { readDocuments } from './documents.ts';

parentPort?.postMessage(readDocuments(workerData as string), []);
