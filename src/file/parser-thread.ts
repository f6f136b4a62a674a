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

export interface Parsed {
  readonly parts: Part[];
  readonly result: ParseResult;
}

/** Next to this file, as source or compiled, or inside the executable. */
const ENTRY = threadModule('parser-worker', 'parser-worker', import.meta.url);

/**
 * Parses versions of a state file in a worker thread, one at a time, so that proxying continues meanwhile. The thread
 * sends changes in small parts: copying a large state at once would block the main thread.
 *
 * The thread's memory and time are limited. When it ends, pending requests reject with a KpngError, and the next
 * content gets a new thread, whose changes begin with a reset.
 */
export class ParserThread {
  readonly #path: string;
  readonly #limits: FileLimits;
  readonly #module: URL;
  #worker: Worker | undefined;
  #parsing: PromiseWithResolvers<Parsed> | undefined;
  #parts: Part[] = [];

  constructor(path: string, limits: FileLimits, module = ENTRY) {
    this.#path = path;
    this.#limits = limits;
    this.#module = module;
  }

  /** Starts the thread ahead of the first content. */
  start(): Worker {
    if (this.#worker !== undefined) return this.#worker;
    const { maxParserBytes } = this.#limits;
    const worker = new Worker(this.#module, {
      name: 'kpng-userspace state file',
      workerData: this.#limits,
      resourceLimits: { maxOldGenerationSizeMb: maxParserBytes / 2 ** 20 },
      // Flags of this process may not suit a thread, such as `--input-type`.
      execArgv: ['--disable-warning=ExperimentalWarning'],
    });
    // A terminated thread may still send messages.
    const isCurrent = (): boolean => this.#worker === worker;
    worker.on('message', (answer: Answer) => isCurrent() && this.#take(answer));
    worker.on('error', (error: NodeJS.ErrnoException) => {
      const isMemory = error.code === 'ERR_WORKER_OUT_OF_MEMORY';
      const memory = `it takes more than ${formatBytes(maxParserBytes)} of memory`;
      const why = isMemory ? memory : messageOf(error);
      if (isCurrent()) this.#fail(isMemory ? LIMIT : READ, why, error);
    });
    worker.on('exit', (code) => isCurrent() && this.#fail(READ, `its thread ended with ${code}`));
    // After the listeners: one for messages keeps the process alive.
    worker.unref();
    this.#worker = worker;
    return worker;
  }

  /** Transfers the bytes to the thread. Rejects with a KpngError if the thread ends before it has answered. */
  async parse(bytes: Uint8Array<ArrayBuffer>): Promise<Parsed> {
    const { maxParseMs } = this.#limits;
    const late = (): void => this.#fail(LIMIT, `it takes longer than ${maxParseMs / 1000} s`);
    const timer = systemClock.setTimer(maxParseMs, late);
    this.#parts = [];
    this.#parsing = Promise.withResolvers();
    this.start().postMessage(bytes, [bytes.buffer]);
    try {
      return await this.#parsing.promise;
    } finally {
      timer.cancel();
    }
  }

  /** Ends the thread at once. Idempotent. */
  async close(): Promise<void> {
    const worker = this.#worker;
    this.#fail(READ, 'its thread was ended');
    await worker?.terminate();
  }

  #take(answer: Answer): void {
    if (!('ok' in answer)) return void this.#parts.push(answer);
    this.#parsing?.resolve({ parts: this.#parts, result: answer });
    this.#parsing = undefined;
  }

  #fail(code: typeof LIMIT | typeof READ, why: string, cause?: unknown): void {
    const message = `cannot parse the state file ${this.#path}: ${why}`;
    const error = new KpngError(code, message, { cause });
    this.#parsing?.reject(error);
    this.#parsing = undefined;
    void this.#worker?.terminate();
    this.#worker = undefined;
  }
}

const LIMIT = 'KPNG_STATE_FILE_LIMIT';
const READ = 'KPNG_STATE_FILE_READ';
