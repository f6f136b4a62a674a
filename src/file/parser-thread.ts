import { Worker } from 'node:worker_threads';
import { KpngError, messageOf } from '../errors.ts';
import { threadModule } from '../util/bundle.ts';
import { formatBytes } from '../util/bytes.ts';
import type { FileLimits } from './limits.ts';
import type { Verdict } from './parser.ts';

export interface ThreadOptions {
  readonly limits: FileLimits;
  /** The node whose view is handed over; undefined: the state of the cluster is. */
  readonly nodeName: string | undefined;
}

/** What the thread is asked. */
export type Request =
  { readonly kind: 'parse'; readonly bytes: Uint8Array<ArrayBuffer> } | { readonly kind: 'part' };

/** What it answers, in the order of the questions. */
export type Answer<Step> =
  | { readonly kind: 'verdict'; readonly verdict: Verdict }
  /** `steps`: none is the last part; undefined: there was no valid content yet. */
  | { readonly kind: 'part'; readonly steps: readonly Step[] | undefined };

/** Takes the steps from the state that was taken last to the newest one. */
export interface Taker<Step> {
  /** `anew`: they lead to the whole state from nothing instead. */
  begin(anew: boolean): void;
  take(step: Step): void;
}

/** Beside this file, as source or compiled, or inside the executable. */
const ENTRY = threadModule(
  'parser-worker',
  new URL(
    import.meta.url.endsWith('.ts') ? 'parser-worker.ts' : 'parser-worker.js',
    import.meta.url,
  ),
);

/**
 * Parses contents of a state file in a thread of its own, so that proxying goes on meanwhile however
 * large the file is. The thread keeps the state, and hands over what has changed of it, in parts: a
 * large state that is copied at once would hold everything up, too.
 *
 * The thread's memory is bounded. When it ends for that or another reason, what was asked of it
 * rejects, and the next content gets a new thread.
 */
export class ParserThread<Step> {
  readonly #options: ThreadOptions;
  readonly #module: URL;
  #thread: Thread<Step> | undefined;

  /** `module`: what the thread runs; by default the parser. */
  constructor(options: ThreadOptions, module: URL = ENTRY) {
    this.#options = options;
    this.#module = module;
  }

  /** Starts the thread, so that it is ready by the time there is something to parse. */
  start(): Thread<Step> {
    this.#thread ??= new Thread(this.#options, this.#module);
    return this.#thread;
  }

  /** The bytes belong to the thread from then on. Rejects with the reason when the thread has ended. */
  async parse(bytes: Uint8Array<ArrayBuffer>): Promise<Verdict> {
    const thread = this.start();
    return this.#orEnd(thread, () => thread.parse(bytes));
  }

  /**
   * Hands over what has changed, up to the last valid content; false: this thread has had none yet. Not
   * to be called again before it settles. Rejects with the reason when the thread has ended; then not
   * all steps have been taken.
   */
  async hand(taker: Taker<Step>): Promise<boolean> {
    const thread = this.#thread;
    if (thread === undefined) throw new Error('the thread that had it has ended');
    return this.#orEnd(thread, () => thread.hand(taker));
  }

  /** Ends the thread, whatever it does. Idempotent. */
  async close(): Promise<void> {
    await this.#thread?.end();
  }

  async #orEnd<T>(thread: Thread<Step>, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (this.#thread === thread) this.#thread = undefined;
      await thread.end();
      throw error;
    }
  }
}

/** One thread, for as long as it lives. */
class Thread<Step> {
  readonly #worker: Worker;
  readonly #waiting: PromiseWithResolvers<Answer<Step>>[] = [];
  #error: Error | undefined;
  /** Whether it has handed over nothing yet. */
  #isNew = true;

  constructor(options: ThreadOptions, module: URL) {
    const { maxParserBytes } = options.limits;
    this.#worker = new Worker(module, {
      name: 'kpng-userspace state file',
      workerData: options,
      resourceLimits: { maxOldGenerationSizeMb: maxParserBytes / 2 ** 20 },
      // What this process was started with may not suit a thread, such as `--input-type`.
      execArgv: ['--disable-warning=ExperimentalWarning'],
    });
    this.#worker.unref();
    this.#worker.on('message', (answer: Answer<Step>) => this.#waiting.shift()?.resolve(answer));
    this.#worker.on('error', (error: Error) => this.#fail(error));
    this.#worker.on('exit', (code) => this.#fail(new Error(`its thread ended with ${code}`)));
  }

  async parse(bytes: Uint8Array<ArrayBuffer>): Promise<Verdict> {
    const answer = await this.#ask({ kind: 'parse', bytes }, [bytes.buffer]);
    if (answer.kind !== 'verdict') throw new Error('its thread has mixed up the answers');
    return answer.verdict;
  }

  async hand(taker: Taker<Step>): Promise<boolean> {
    for (let isFirst = true; ; isFirst = false) {
      // One part after the other, so that everything else has its turn between two of them.
      const answer = await this.#ask({ kind: 'part' });
      if (answer.kind !== 'part') throw new Error('its thread has mixed up the answers');
      const { steps } = answer;
      if (steps === undefined) return false;
      if (isFirst) taker.begin(this.#isNew);
      this.#isNew = false;
      if (steps.length === 0) return true;
      for (const step of steps) taker.take(step);
    }
  }

  async end(): Promise<void> {
    this.#fail(new Error('its thread was ended'));
    await this.#worker.terminate();
  }

  #ask(request: Request, transfer: readonly ArrayBuffer[] = []): Promise<Answer<Step>> {
    const waiting = Promise.withResolvers<Answer<Step>>();
    if (this.#error === undefined) {
      this.#waiting.push(waiting);
      this.#worker.postMessage(request, transfer);
    } else {
      waiting.reject(this.#error);
    }
    return waiting.promise;
  }

  #fail(error: Error): void {
    this.#error ??= error;
    for (const waiting of this.#waiting.splice(0)) waiting.reject(this.#error);
  }
}

/** What a user has to know of an error of a parser thread. */
export function parserError(
  path: string,
  { maxParserBytes }: FileLimits,
  cause: unknown,
): KpngError {
  const { code } = cause as NodeJS.ErrnoException;
  if (code === 'ERR_WORKER_OUT_OF_MEMORY') {
    const limit = formatBytes(maxParserBytes);
    const message = `${path}: more than ${limit} of memory would be needed to parse the file`;
    return new KpngError('KPNG_STATE_FILE_INVALID', message, { cause });
  }
  const message = `cannot parse the state file ${path}: ${messageOf(cause)}`;
  return new KpngError('KPNG_STATE_FILE_READ', message, { cause });
}
