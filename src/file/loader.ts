import { KpngError } from '../errors.ts';
import type { GlobalState } from '../store/global-state.ts';
import { Backoff, type BackoffPolicy } from '../util/backoff.ts';
import { MAX_TIMER_MS, systemClock, type Clock, type Timer } from '../util/clock.ts';
import {
  fileInvalid,
  fileLoaded,
  fileReadFailed,
  fileRecovered,
  type FileInvalid,
} from './events.ts';
import { DEFAULT_FILE_LIMITS, type FileLimits } from './limits.ts';
import { Mailbox } from './mailbox.ts';
import { parserError, ParserThread, type Parsed } from './parser-thread.ts';
import { formatProblems, type Problems } from './problem.ts';
import type { WatchDirectory } from './watch-directories.ts';
import { FileWatcher } from './watch.ts';

export interface FileLoaderOptions {
  readonly path: string;
  /** Default: the real one. */
  readonly clock?: Clock;
  /** Default: Math.random. */
  readonly random?: () => number;
  /** Default: DEFAULT_FILE_LIMITS. */
  readonly limits?: FileLimits;
  /** How to hear of changes. Default: `fs.watch`. */
  readonly watchDirectory?: WatchDirectory;
}

/** How things stand with a state file, for health, metrics and status. */
export interface FileSnapshot {
  readonly path: string;
  /** `waiting`: nothing was loaded yet. `stale`: the last state is served, the file has an error. */
  readonly state: 'waiting' | 'loaded' | 'stale';
  /** Why the file as it is now is not served. */
  readonly error: KpngError | undefined;
  /** How often a valid file was loaded. */
  readonly loads: number;
  /** How often the file had new content with errors in it. */
  readonly invalid: number;
  /** How often the file could not be read, each cause counted once. */
  readonly readFailures: number;
  /** When a valid file was last loaded, by the clock that was given. Milliseconds. */
  readonly lastLoadAtMs: number | undefined;
}

/** Waits before a content is parsed again that ended the parser. It costs much and seldom helps. */
const PARSER_BACKOFF: BackoffPolicy = { initialMs: 1000, maxMs: 300_000, factor: 4, jitter: 0.2 };

/** Follows a state file and hands out each valid state of it. */
export class FileLoader {
  readonly #path: string;
  readonly #clock: Clock;
  readonly #limits: FileLimits;
  readonly #watchDirectory: WatchDirectory | undefined;
  readonly #parser: ParserThread;
  readonly #parserBackoff: Backoff;
  #parserRetry: Timer | undefined;
  /** Why the file cannot be read now. */
  #readError: KpngError | undefined;
  /** Why the content that was read last could not be parsed to the end. */
  #parserError: KpngError | undefined;
  /** What is wrong with the content that was read last. */
  #contentError: Omit<FileInvalid, 'path'> | undefined;
  #loads = 0;
  #invalid = 0;
  #readFailures = 0;
  #lastLoadAtMs: number | undefined;

  constructor(options: FileLoaderOptions) {
    this.#path = options.path;
    this.#clock = options.clock ?? systemClock;
    this.#limits = options.limits ?? DEFAULT_FILE_LIMITS;
    this.#watchDirectory = options.watchDirectory;
    this.#parser = new ParserThread(this.#limits);
    this.#parserBackoff = new Backoff(PARSER_BACKOFF, options.random ?? Math.random);
  }

  snapshot(): FileSnapshot {
    const error = this.#readError ?? this.#parserError ?? this.#contentError?.error;
    const loaded = error === undefined ? 'loaded' : 'stale';
    return {
      path: this.#path,
      state: this.#loads === 0 ? 'waiting' : loaded,
      error,
      loads: this.#loads,
      invalid: this.#invalid,
      readFailures: this.#readFailures,
      lastLoadAtMs: this.#lastLoadAtMs,
    };
  }

  /**
   * Calls back with the state of the file now and after each change, as long as it is valid. What
   * changes while a file is parsed is coalesced: the next one that is parsed is the newest. Resolves
   * when the signal is aborted; keeps the process alive until then.
   */
  async watch(onState: (state: GlobalState) => void, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    // The timers and watches of a file do not keep the process alive.
    const keepAlive = setInterval(() => undefined, MAX_TIMER_MS);
    const mailbox = new Mailbox<Uint8Array<ArrayBuffer>>();
    const stop = (): void => {
      mailbox.close();
      void this.#parser.close();
    };
    signal.addEventListener('abort', stop, { once: true });
    this.#parser.start();
    const watcher = this.#watcher(mailbox);
    watcher.start();
    try {
      for (let bytes = await mailbox.take(); bytes !== undefined; bytes = await mailbox.take()) {
        this.#parserRetry?.cancel();
        const state = await this.#load(bytes, watcher, signal);
        if (state !== undefined && !signal.aborted) onState(state);
      }
    } finally {
      signal.removeEventListener('abort', stop);
      this.#parserRetry?.cancel();
      watcher.close();
      await this.#parser.close();
      clearInterval(keepAlive);
    }
  }

  #watcher(mailbox: Mailbox<Uint8Array<ArrayBuffer>>): FileWatcher {
    return new FileWatcher({
      path: this.#path,
      limits: this.#limits,
      clock: this.#clock,
      watchDirectory: this.#watchDirectory,
      onContent: (bytes) => {
        this.#readError = undefined;
        mailbox.put(bytes);
      },
      onError: (error) => this.#readFailed(error),
      onRecovered: () => this.#recovered(),
    });
  }

  async #load(
    bytes: Uint8Array<ArrayBuffer>,
    watcher: FileWatcher,
    signal: AbortSignal,
  ): Promise<GlobalState | undefined> {
    const startedAt = this.#clock.now();
    const size = bytes.length;
    let parsed: Parsed;
    try {
      parsed = await this.#parser.parse(bytes);
    } catch (cause) {
      if (!signal.aborted) this.#parserEnded(parserError(this.#path, this.#limits, cause), watcher);
      return undefined;
    }
    this.#parserError = undefined;
    this.#parserBackoff.reset();
    if (!parsed.ok) {
      this.#refused(parsed.errors);
      return undefined;
    }
    const { state, warnings, newWarnings, parsedItems } = parsed;
    this.#loads += 1;
    this.#contentError = undefined;
    this.#lastLoadAtMs = this.#clock.now();
    if (fileLoaded.hasSubscribers) {
      fileLoaded.publish({
        path: this.#path,
        services: state.services.size,
        nodes: state.nodes.size,
        parsedItems,
        bytes: size,
        durationMs: this.#lastLoadAtMs - startedAt,
        warnings,
        newWarnings,
      });
    }
    return state;
  }

  /** Nobody knows whether the content is valid; it is tried again. */
  #parserEnded(error: KpngError, watcher: FileWatcher): void {
    const isNew = this.#parserError?.message !== error.message;
    this.#parserError = error;
    this.#parserRetry = this.#clock.setTimer(this.#parserBackoff.next(), () => watcher.again());
    if (!isNew) return;
    this.#readFailures += 1;
    this.#tellReadFailed(error);
  }

  #refused(errors: Problems): void {
    const count = errors.total === 1 ? 'an error' : `${errors.total} errors`;
    const served = this.#loads > 0;
    const kept = served ? 'the former state is kept' : 'no state is served yet';
    const message = `the state file has ${count}; ${kept}\n${formatProblems(this.#path, errors)}`;
    const error = new KpngError('KPNG_STATE_FILE_INVALID', message);
    this.#invalid += 1;
    this.#contentError = { error, errors, served };
    this.#tellInvalid(this.#contentError);
  }

  #tellInvalid(what: Omit<FileInvalid, 'path'>): void {
    if (fileInvalid.hasSubscribers) fileInvalid.publish({ path: this.#path, ...what });
  }

  #readFailed(error: KpngError): void {
    this.#readError = error;
    this.#readFailures += 1;
    this.#tellReadFailed(error);
  }

  #tellReadFailed(error: KpngError): void {
    if (fileReadFailed.hasSubscribers) fileReadFailed.publish({ path: this.#path, error });
  }

  #recovered(): void {
    this.#readError = undefined;
    if (this.#parserError !== undefined) this.#tellReadFailed(this.#parserError);
    else if (this.#contentError !== undefined) this.#tellInvalid(this.#contentError);
    else if (fileRecovered.hasSubscribers) fileRecovered.publish({ path: this.#path });
  }
}
