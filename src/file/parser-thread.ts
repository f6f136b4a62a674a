import { Worker } from 'node:worker_threads';
import { KpngError, messageOf } from '../errors.ts';
import { threadModule } from '../util/bundle.ts';
import { formatBytes } from '../util/bytes.ts';
import { systemClock } from '../util/clock.ts';
import type { FileLimits } from './limits.ts';
import type { ParseResult } from './parse.ts';

/** Some of the new and changed service items, each as JSON. */
export type Part = readonly string[];

/** What the thread sends for a content: parts while it is being parsed, then the result. */
export type Answer = Part | ParseResult;

/** Next to this file, as source or compiled, or inside the executable. */
const ENTRY = threadModule('parser-worker', 'parser-worker', import.meta.url);

/**
 * Parses versions of a state file in a worker thread, one at a time, so that proxying continues meanwhile. The thread
 * sends changes in small parts: copying a large state at once would block the main thread.
 *
 * The thread's memory and time are limited. When it ends, pending requests reject with a KpngError, and the next
 * content gets a new thread, whose changes begin with a reset.
 */
export function startParserThread(path: string, limits: FileLimits, module = ENTRY) {
  let worker: Worker | undefined;
  let parts: Part[] = [];
  let parsing: PromiseWithResolvers<{ parts: Part[]; result: ParseResult }> | undefined;

  const fail = (code: typeof LIMIT | typeof READ, why: string, cause?: unknown): void => {
    const message = `cannot parse the state file ${path}: ${why}`;
    parsing?.reject(new KpngError(code, message, { cause }));
    parsing = undefined;
    void worker?.terminate();
    worker = undefined;
  };
  const start = (): Worker => {
    const { maxParserBytes } = limits;
    const thread = new Worker(module, {
      name: 'kpng-userspace state file',
      workerData: limits,
      resourceLimits: { maxOldGenerationSizeMb: maxParserBytes / 2 ** 20 },
      // Flags of this process may not suit a thread, such as `--input-type`.
      execArgv: ['--disable-warning=ExperimentalWarning'],
    });
    // A terminated thread may still send messages.
    const isCurrent = (): boolean => worker === thread;
    thread.on('message', (answer: Answer) => {
      if (!isCurrent()) return;
      if (!('ok' in answer)) {
        parts.push(answer);
        return;
      }
      parsing?.resolve({ parts, result: answer });
      parsing = undefined;
    });
    thread.on('error', (error: NodeJS.ErrnoException) => {
      const isMemory = error.code === 'ERR_WORKER_OUT_OF_MEMORY';
      const memory = `it takes more than ${formatBytes(maxParserBytes)} of memory`;
      const why = isMemory ? memory : messageOf(error);
      if (isCurrent()) fail(isMemory ? LIMIT : READ, why, error);
    });
    thread.on('exit', (code) => isCurrent() && fail(READ, `its thread ended with ${code}`));
    // After the listeners: one for messages keeps the process alive.
    thread.unref();
    return thread;
  };
  // Ahead of the first content.
  worker = start();

  return {
    /** Transfers the bytes to the thread. Rejects with a KpngError if the thread ends before it has answered. */
    async parse(bytes: Uint8Array<ArrayBuffer>) {
      const late = (): void => fail(LIMIT, `it takes longer than ${limits.maxParseMs / 1000} s`);
      const timer = systemClock.setTimer(limits.maxParseMs, late);
      parts = [];
      parsing = Promise.withResolvers();
      worker ??= start();
      worker.postMessage(bytes, [bytes.buffer]);
      try {
        return await parsing.promise;
      } finally {
        timer.cancel();
      }
    },
    /** Ends the thread at once. Idempotent. */
    async close(): Promise<void> {
      const ended = worker?.terminate();
      fail(READ, 'its thread was ended');
      await ended;
    },
  };
}

const LIMIT = 'KPNG_STATE_FILE_LIMIT';
const READ = 'KPNG_STATE_FILE_READ';
