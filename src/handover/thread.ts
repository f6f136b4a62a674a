import { isBuiltin } from 'node:module';
import { extname } from 'node:path';
import { Worker } from 'node:worker_threads';
import { threadModule } from '../util/bundle.ts';
import type { Given, GiveOptions } from './give.ts';
import type { Taken, TakeOptions } from './take.ts';

export interface GiveJob extends GiveOptions {
  readonly kind: 'give';
  /** The connection to the successor. It stays open. */
  readonly fd: number;
  readonly limitMs: number;
}

export interface TakeJob extends TakeOptions {
  readonly kind: 'take';
}

export type Job = GiveJob | TakeJob;

/** From the thread; an error loses its code on the way, so it is told apart. */
export type Outcome =
  | { readonly result: Given | Taken }
  | { readonly message: string; readonly code: string | undefined };

const MODULE = threadModule(
  'handover-worker',
  new URL(`./worker${extname(import.meta.url)}`, import.meta.url),
);

/** Whether this Node can pass descriptors: on Linux, with `node:ffi`. */
export function canHandOver(): boolean {
  return process.platform === 'linux' && isBuiltin('node:ffi');
}

/** Answers a successor. Rejects when it has gone, or does not keep to the protocol. */
export async function giveInThread(job: GiveJob): Promise<Given> {
  return (await inThread(job)) as Given;
}

/** Asks a predecessor. Rejects with the system's error when nobody is there. */
export async function takeInThread(job: TakeJob): Promise<Taken> {
  return (await inThread(job)) as Taken;
}

/** The work blocks, and calls the C library; neither is for the main thread. */
function inThread(job: Job): Promise<Given | Taken> {
  const { promise, resolve, reject } = Promise.withResolvers<Given | Taken>();
  const worker = new Worker(MODULE, {
    name: 'kpng-userspace handover',
    workerData: job,
    // That `node:ffi` is experimental is known; without it there is no handover, and no harm.
    execArgv: ['--disable-warning=ExperimentalWarning'],
  });
  worker.once('message', (outcome: Outcome) => {
    if ('result' in outcome) resolve(outcome.result);
    else reject(Object.assign(new Error(outcome.message), { code: outcome.code }));
  });
  worker.once('error', reject);
  worker.once('exit', () => reject(new Error('the thread of the handover has ended')));
  return promise;
}
