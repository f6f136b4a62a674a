import { Readable } from 'node:stream';
import { Worker } from 'node:worker_threads';
import { KpngError, messageOf } from '../errors.ts';
import { threadModule } from '../util/bundle.ts';
import { formatBytes } from '../util/bytes.ts';
import type { Clock, Timer } from '../util/clock.ts';
import type { FileLimits } from './limits.ts';
import type { ParsedState, RefusedState } from './parse.ts';

export type ParseOutcome =
  | RefusedState
  | (Omit<ParsedState, 'nodes'> & {
      readonly nodes: number;
      /** All nodes as JSON, a text as threads exchange those at little cost; undefined: unchanged. */
      readonly nodesText: string | undefined;
      /** It is the first content of the thread: services and nodes that are not in it are removed. */
      readonly reset: boolean;
    });

/** Some of the new and changed service items, each as JSON. Empty: those so far do not count. */
export type Part = readonly string[];

/** What the thread sends for a content: parts while it is being parsed, then the result. */
export type Answer = Part | ParseOutcome;

export interface Parsing {
  readonly parts: AsyncIterable<Part>;
  readonly outcome: Promise<ParseOutcome>;
}

/** Next to this file, as source or compiled, or inside the executable. */
const ENTRY = threadModule('parser-worker', 'parser-worker', import.meta.url);

export interface ParserThreadOptions {
  /** For messages. */
  readonly path: string;
  readonly limits: FileLimits;
  readonly clock: Clock;
  /** Module of the thread. Default: parser-worker.ts. */
  readonly module?: URL | undefined;
}

/**
 * Parses versions of a state file in a worker thread, one at a time, so that proxying continues meanwhile. The thread
 * sends changes in small parts: copying a large state at once would block the main thread.
 *
 * The thread's memory and time are limited. When it ends, pending requests reject with a KpngError, and the next
 * content gets a new thread, whose changes begin with a reset.
 */
export class ParserThread {
  readonly #options: ParserThreadOptions;
  #worker: Worker | undefined;
  #parsing:
    | (Omit<PromiseWithResolvers<ParseOutcome>, 'promise'> & {
        readonly parts: Readable;
      })
    | undefined;
  #outdated: Timer | undefined;
  #isOutdated = false;
  /** The content being parsed replaces one whose parsing was aborted. */
  #isReplacement = false;

  constructor(options: ParserThreadOptions) {
    this.#options = options;
  }

  /** Starts the thread ahead of the first content. */
  start(): Worker {
    if (this.#worker !== undefined) return this.#worker;
    const { limits, module = ENTRY } = this.#options;
    const worker = new Worker(module, {
      name: 'kpng-userspace state file',
      workerData: limits,
      resourceLimits: { maxOldGenerationSizeMb: limits.maxParserBytes / 2 ** 20 },
      // Flags of this process may not suit a thread, such as `--input-type`.
      execArgv: ['--disable-warning=ExperimentalWarning'],
    });
    worker.unref();
    // A terminated thread may still send messages.
    const isCurrent = (): boolean => this.#worker === worker;
    worker.on('message', (answer: Answer) => isCurrent() && this.#take(answer));
    worker.on('error', (error: NodeJS.ErrnoException) => {
      const isMemory = error.code === 'ERR_WORKER_OUT_OF_MEMORY';
      const memory = `it takes more than ${formatBytes(limits.maxParserBytes)} of memory`;
      const why = isMemory ? memory : messageOf(error);
      if (isCurrent()) this.#fail(isMemory ? LIMIT : READ, why, error);
    });
    worker.on('exit', (code) => isCurrent() && this.#fail(READ, `its thread ended with ${code}`));
    this.#worker = worker;
    return worker;
  }

  /** Transfers the bytes to the thread. */
  parse(bytes: Uint8Array<ArrayBuffer>): Parsing {
    const { clock, limits } = this.#options;
    const { maxParseMs } = limits;
    const timer = clock.setTimer(maxParseMs, () => {
      this.#fail(LIMIT, `it takes longer than ${maxParseMs / 1000} s`);
    });
    const { promise, ...settle } = Promise.withResolvers<ParseOutcome>();
    const parts = new Readable({ objectMode: true, read: () => undefined });
    parts.on('error', () => undefined);
    this.#parsing = { ...settle, parts };
    this.start().postMessage(bytes, [bytes.buffer]);
    const outcome = promise.finally(() => {
      timer.cancel();
      this.#outdated?.cancel();
      this.#outdated = undefined;
      this.#isReplacement = this.#isOutdated;
      this.#isOutdated = false;
    });
    // Reading the parts may fail first, with the same error.
    outcome.catch(() => undefined);
    return { parts, outcome };
  }

  /**
   * There is newer content: limits the remaining time for the current one, unless that already replaces an aborted
   * one. So a file that changes constantly is still parsed now and then.
   */
  expedite(): void {
    if (this.#parsing === undefined || this.#isReplacement || this.#outdated !== undefined) return;
    const { clock, limits } = this.#options;
    this.#outdated = clock.setTimer(limits.maxOutdatedParseMs, () => {
      this.#isOutdated = true;
      this.#fail(LIMIT, 'it takes long, and the file has newer content');
    });
  }

  /** Ends the thread at once. Idempotent. */
  async close(): Promise<void> {
    const worker = this.#worker;
    this.#fail(READ, 'its thread was ended');
    await worker?.terminate();
  }

  #take(answer: Answer): void {
    if (!('ok' in answer)) return void this.#parsing?.parts.push(answer);
    this.#parsing?.parts.push(null);
    this.#parsing?.resolve(answer);
    this.#parsing = undefined;
  }

  #fail(code: typeof LIMIT | typeof READ, why: string, cause?: unknown): void {
    const message = `cannot parse the state file ${this.#options.path}: ${why}`;
    const error = new KpngError(code, message, { cause });
    this.#parsing?.parts.destroy(error);
    this.#parsing?.reject(error);
    this.#parsing = undefined;
    void this.#worker?.terminate();
    this.#worker = undefined;
  }
}

const LIMIT = 'KPNG_STATE_FILE_LIMIT';
const READ = 'KPNG_STATE_FILE_READ';
