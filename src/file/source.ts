import { KpngError } from '../errors.ts';
import type { GlobalSource, GlobalStore } from '../store/global-store.ts';
import { Backoff, type BackoffPolicy } from '../util/backoff.ts';
import { type Clock, MAX_TIMER_MS, type Timer, systemClock } from '../util/clock.ts';
import { FileWatcher } from '../util/file-watcher.ts';
import { writeChanges } from './changes.ts';
import { FileStatus } from './events.ts';
import { DEFAULT_FILE_LIMITS, type FileLimits } from './limits.ts';
import { ParserThread } from './parser-thread.ts';

export interface FileSourceOptions {
  readonly path: string;
  readonly clock?: Clock;
  readonly random?: () => number;
  readonly limits?: FileLimits;
  /** The parser thread's module. Default: parser-worker.ts. */
  readonly parserModule?: URL;
}

export const STATE_FILE = {
  name: 'the state file',
  unreadable: 'KPNG_STATE_FILE_READ',
  tooLarge: 'KPNG_STATE_FILE_LIMIT',
} as const;

/** Delays before content that crashed the parser is parsed again: it is expensive, and rarely succeeds. */
const PARSER_BACKOFF: BackoffPolicy = { initialMs: 1000, maxMs: 300_000, factor: 4, jitter: 0.2 };

/**
 * State from a YAML or JSON file, re-read whenever it changes.
 *
 * A file that is missing, invalid or over a limit changes nothing: the source reports it (see events.ts), keeps what
 * it delivered, and continues once the file is valid. Nothing is delivered before the first valid file.
 */
export class FileSource implements GlobalSource {
  readonly name: string;
  readonly #options: FileSourceOptions;
  readonly #clock: Clock;
  readonly #limits: FileLimits;
  readonly #status: FileStatus;

  constructor(options: FileSourceOptions) {
    this.name = `state file ${options.path}`;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#limits = options.limits ?? DEFAULT_FILE_LIMITS;
    this.#status = new FileStatus(options.path);
  }

  /**
   * Writes each valid state of the file to the store, until the signal is aborted; keeps the process alive until
   * then. Changes during parsing are coalesced: the next one is the newest.
   */
  async feed(store: GlobalStore, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    const { path, random = Math.random, parserModule: module } = this.#options;
    // The timers, watches and threads of a file do not keep the process alive.
    const keepAlive = setInterval(() => undefined, MAX_TIMER_MS);
    const thread = new ParserThread({ path, limits: this.#limits, clock: this.#clock, module });
    const backoff = new Backoff(PARSER_BACKOFF, random);
    let retry: Timer | undefined;
    let newest: Uint8Array<ArrayBuffer> | undefined;
    let wake: (() => void) | undefined;
    const stop = (): void => {
      wake?.();
      void thread.close();
    };
    signal.addEventListener('abort', stop, { once: true });
    const watcher = new FileWatcher({
      path,
      kind: STATE_FILE,
      limits: this.#limits,
      clock: this.#clock,
      onContent(bytes) {
        newest = bytes;
        thread.expedite();
        wake?.();
      },
      onError: (error) => this.#status.readFailed(error),
      onRecovered: () => this.#status.recovered(),
    });
    thread.start();
    watcher.start();
    try {
      while (!signal.aborted) {
        const bytes = newest;
        newest = undefined;
        if (bytes === undefined) {
          await new Promise<void>((resolve) => (wake = resolve));
          continue;
        }
        retry?.cancel();
        try {
          await this.#load(bytes, thread, store);
          backoff.reset();
        } catch (error) {
          if (!(error instanceof KpngError)) throw error;
          if (signal.aborted) break;
          this.#status.parserEnded(error);
          retry = this.#clock.setTimer(backoff.next(), () => watcher.again());
        }
      }
    } finally {
      signal.removeEventListener('abort', stop);
      retry?.cancel();
      watcher.close();
      await thread.close();
      clearInterval(keepAlive);
    }
  }

  /** Rejects with a KpngError if the parser ends before everything is loaded. */
  async #load(
    bytes: Uint8Array<ArrayBuffer>,
    thread: ParserThread,
    store: GlobalStore,
  ): Promise<void> {
    const startedAt = this.#clock.now();
    const size = bytes.length;
    const { parts, outcome } = thread.parse(bytes);
    const reported = outcome.then((parsed) => {
      if (!parsed.ok) this.#status.refused(parsed.errors);
      else {
        const { services, nodes, parsedItems, newWarnings } = parsed;
        const durationMs = this.#clock.now() - startedAt;
        this.#status.loaded({ services, nodes, parsedItems, bytes: size, durationMs, newWarnings });
      }
      return parsed;
    });
    reported.catch(() => undefined);
    // Readers see nothing before the first state is complete, so it is written while the rest of it is parsed.
    if (store.synced && !(await reported).ok) return;
    await store.updateInParts((transaction) =>
      writeChanges(store, transaction, { parts, outcome: reported }),
    );
  }
}
