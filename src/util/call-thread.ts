import { Worker } from 'node:worker_threads';
import { formatBytes } from './bytes.ts';

export interface CallThreadOptions {
  /** Such as `kpng-userspace handover`. */
  readonly name: string;
  readonly data: unknown;
  /** Time until the thread has to answer. Milliseconds. Absent: the thread limits itself. */
  readonly limitMs?: number;
  /** Memory limit of the thread. Bytes. Absent: Node's default. */
  readonly maxBytes?: number;
}

/**
 * Runs a module in its own thread and resolves with the first message that it posts. Rejects with what the module
 * throws, or with an Error when it exceeds a limit or ends without a message. The thread has ended by then.
 */
export async function callThread(module: URL, options: CallThreadOptions): Promise<unknown> {
  const { name, data, limitMs, maxBytes } = options;
  const { promise, resolve, reject } = Promise.withResolvers<unknown>();
  const worker = new Worker(module, {
    name,
    workerData: data,
    ...(maxBytes !== undefined && {
      resourceLimits: { maxOldGenerationSizeMb: maxBytes / 2 ** 20 },
    }),
    // Flags of this process may not suit a thread, such as `--input-type`.
    execArgv: ['--disable-warning=ExperimentalWarning'],
    // A handover passes descriptors between threads; otherwise Node warns about each descriptor that another thread
    // opened.
    trackUnmanagedFds: false,
  });
  worker.once('message', resolve);
  worker.once('error', (error: NodeJS.ErrnoException) => {
    const isMemory = error.code === 'ERR_WORKER_OUT_OF_MEMORY' && maxBytes !== undefined;
    reject(isMemory ? new Error(`it takes more than ${formatBytes(maxBytes)} of memory`) : error);
  });
  worker.once('exit', (code) => reject(new Error(`its thread ended with ${code}`)));
  const late = (): void => reject(new Error(`it takes longer than ${Number(limitMs) / 1000} s`));
  const timer = limitMs === undefined ? undefined : setTimeout(late, limitMs);
  try {
    return await promise;
  } finally {
    clearTimeout(timer);
    await worker.terminate();
  }
}
