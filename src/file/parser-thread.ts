import { Worker } from 'node:worker_threads';
import { KpngError, messageOf } from '../errors.ts';
import type { GlobalState } from '../store/global-state.ts';
import { formatBytes } from '../util/bytes.ts';
import type { FileLimits } from './limits.ts';
import type { Verdict } from './parser.ts';
import { StateBuilder, type StateChange } from './state-changes.ts';

/** What the thread is asked, one thing after the other. */
export type Request =
  { readonly kind: 'parse'; readonly bytes: Uint8Array<ArrayBuffer> } | { readonly kind: 'part' };

/** What it answers. */
export type Answer =
  | { readonly kind: 'verdict'; readonly verdict: Verdict }
  | { readonly kind: 'part'; readonly changes: readonly StateChange[] };

/** What became of a content. */
export type Parsed =
  | (Verdict & { readonly ok: false })
  | (Verdict & { readonly ok: true; readonly state: GlobalState });

/** Beside this file, as source or compiled. */
const ENTRY = new URL(
  import.meta.url.endsWith('.ts') ? 'parser-worker.ts' : 'parser-worker.js',
  import.meta.url,
);

/**
 * Parses contents of a state file in a thread of its own, so that proxying goes on meanwhile however
 * large the file is. The thread keeps the former state and hands over what differs from it, in parts.
 *
 * The thread's memory is bounded. When it ends for that or another reason, `parse` rejects, and the
 * next content gets a new thread.
 */
export class ParserThread {
  readonly #limits: FileLimits;
  #thread: Thread | undefined;
  #state: GlobalState | undefined;

  constructor(limits: FileLimits) {
    this.#limits = limits;
  }

  /** Starts the thread, so that it is ready by the time there is something to parse. */
  start(): void {
    this.#thread ??= new Thread(this.#limits);
  }

  /**
   * The bytes belong to the thread from then on. Not to be called again before it settles. Rejects with
   * the reason when the thread has ended.
   */
  async parse(bytes: Uint8Array<ArrayBuffer>): Promise<Parsed> {
    const thread = (this.#thread ??= new Thread(this.#limits));
    try {
      const verdict = await thread.parse(bytes);
      if (!verdict.ok) return verdict;
      this.#state = await thread.bring(this.#state);
      return { ...verdict, state: this.#state };
    } catch (error) {
      this.#thread = undefined;
      await thread.end();
      throw error;
    }
  }

  /** Ends the thread, whatever it does. Idempotent. */
  async close(): Promise<void> {
    const thread = this.#thread;
    this.#thread = undefined;
    await thread?.end();
  }
}

/** One thread, for as long as it lives. */
class Thread {
  readonly #worker: Worker;
  #waiting: PromiseWithResolvers<Answer> | undefined;
  #error: Error | undefined;
  /** Whether it has handed over nothing yet. */
  #isNew = true;

  constructor(limits: FileLimits) {
    this.#worker = new Worker(ENTRY, {
      name: 'state-file',
      workerData: limits,
      resourceLimits: { maxOldGenerationSizeMb: limits.maxParserBytes / 2 ** 20 },
      // What this process was started with may not suit a thread, such as `--input-type`.
      execArgv: [],
    });
    this.#worker.unref();
    this.#worker.on('message', (answer: Answer) => this.#waiting?.resolve(answer));
    this.#worker.on('error', (error: Error) => this.#fail(error));
    this.#worker.on('exit', (code) => this.#fail(new Error(`its thread ended with ${code}`)));
  }

  async parse(bytes: Uint8Array<ArrayBuffer>): Promise<Verdict> {
    const answer = await this.#ask({ kind: 'parse', bytes }, [bytes.buffer]);
    if (answer.kind !== 'verdict') throw new Error('the thread has mixed up its answers');
    return answer.verdict;
  }

  /** The state that was parsed last. `former`: the one before, whose objects are used for what stays. */
  async bring(former: GlobalState | undefined): Promise<GlobalState> {
    const builder = new StateBuilder(former, this.#isNew);
    this.#isNew = false;
    for (;;) {
      const answer = await this.#ask({ kind: 'part' });
      if (answer.kind !== 'part') throw new Error('the thread has mixed up its answers');
      for (const change of answer.changes) builder.add(change);
      if (answer.changes.length === 0) return builder.finish();
    }
  }

  async end(): Promise<void> {
    this.#fail(new Error('its thread was ended'));
    await this.#worker.terminate();
  }

  /** One at a time, so that between two parts everything else has its turn. */
  #ask(request: Request, transfer: readonly ArrayBuffer[] = []): Promise<Answer> {
    const waiting = Promise.withResolvers<Answer>();
    this.#waiting = waiting;
    if (this.#error === undefined) this.#worker.postMessage(request, transfer);
    else waiting.reject(this.#error);
    return waiting.promise;
  }

  #fail(error: Error): void {
    this.#error ??= error;
    this.#waiting?.reject(this.#error);
  }
}

/** What a user has to know of an error of `parse`. */
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
