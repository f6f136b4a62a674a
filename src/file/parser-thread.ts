import { Worker } from 'node:worker_threads';
import { KpngError, messageOf } from '../errors.ts';
import { threadModule } from '../util/bundle.ts';
import { formatBytes } from '../util/bytes.ts';
import type { Clock, Timer } from '../util/clock.ts';
import type { StateChanges } from './changes.ts';
import type { FileLimits } from './limits.ts';
import type { Problems } from './problem.ts';

/** The result for one content of a state file. */
export type ParseOutcome =
  | { readonly ok: false; readonly errors: Problems }
  | {
      readonly ok: true;
      readonly services: number;
      readonly nodes: number;
      /** Number of parsed service items; the others were unchanged. */
      readonly parsedItems: number;
      readonly newWarnings: Problems;
      readonly changes: Omit<StateChanges, 'services'>;
    };

/** Requests to the thread: check a content, or send the next of its changed service items. */
export type Request = Uint8Array<ArrayBuffer> | 'next part';

/** Next to this file, as source or compiled, or inside the executable. */
const ENTRY = threadModule(
  'parser-worker',
  new URL(
    import.meta.url.endsWith('.ts') ? 'parser-worker.ts' : 'parser-worker.js',
    import.meta.url,
  ),
);

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
  #waiting: PromiseWithResolvers<unknown> | undefined;
  #isParsing = false;
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
    worker.on('message', (answer) => isCurrent() && this.#waiting?.resolve(answer));
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
  async parse(bytes: Uint8Array<ArrayBuffer>): Promise<ParseOutcome> {
    const { clock, limits } = this.#options;
    const { maxParseMs } = limits;
    const timer = clock.setTimer(maxParseMs, () => {
      this.#fail(LIMIT, `it takes longer than ${maxParseMs / 1000} s`);
    });
    this.#isParsing = true;
    try {
      return (await this.#request(bytes, [bytes.buffer])) as ParseOutcome;
    } finally {
      timer.cancel();
      this.#outdated?.cancel();
      this.#outdated = undefined;
      this.#isParsing = false;
      this.#isReplacement = this.#isOutdated;
      this.#isOutdated = false;
    }
  }

  /**
   * There is newer content: limits the remaining time for the current one, unless that already replaces an aborted
   * one. So a file that changes constantly is still parsed now and then.
   */
  expedite(): void {
    if (!this.#isParsing || this.#isReplacement || this.#outdated !== undefined) return;
    const { clock, limits } = this.#options;
    this.#outdated = clock.setTimer(limits.maxOutdatedParseMs, () => {
      this.#isOutdated = true;
      this.#fail(LIMIT, 'it takes long, and the file has newer content');
    });
  }

  /** The service items that differ from the last delivered content, as JSON. Can be read once. */
  async changedItems(): Promise<Iterable<string>> {
    const parts: string[][] = [];
    for (;;) {
      // Part by part, so that other work runs in between.
      const part = (await this.#request('next part')) as string[];
      if (part.length === 0) return drained(parts);
      parts.push(part);
    }
  }

  /** Ends the thread at once. Idempotent. */
  async close(): Promise<void> {
    const worker = this.#worker;
    this.#fail(READ, 'its thread was ended');
    await worker?.terminate();
  }

  async #request(request: Request, transfer: readonly ArrayBuffer[] = []): Promise<unknown> {
    const waiting = Promise.withResolvers<unknown>();
    this.#waiting = waiting;
    if (request === 'next part' && this.#worker === undefined) this.#fail(READ, 'its thread ended');
    else this.start().postMessage(request, transfer);
    return waiting.promise;
  }

  #fail(code: typeof LIMIT | typeof READ, why: string, cause?: unknown): void {
    const message = `cannot parse the state file ${this.#options.path}: ${why}`;
    this.#waiting?.reject(new KpngError(code, message, { cause }));
    this.#waiting = undefined;
    void this.#worker?.terminate();
    this.#worker = undefined;
  }
}

/** Frees each part once it is read, as all of them may take much memory. */
function* drained(parts: string[][]): Generator<string> {
  for (let part = parts.shift(); part !== undefined; part = parts.shift()) yield* part;
}

const LIMIT = 'KPNG_STATE_FILE_LIMIT';
const READ = 'KPNG_STATE_FILE_READ';
