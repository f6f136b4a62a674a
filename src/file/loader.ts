import { setImmediate as nextTurn } from 'node:timers/promises';
import { KpngError } from '../errors.ts';
import type { GlobalState } from '../store/global-state.ts';
import { MAX_TIMER_MS, systemClock, type Clock } from '../util/clock.ts';
import {
  fileInvalid,
  fileLoaded,
  fileReadFailed,
  fileRecovered,
  type FileInvalid,
} from './events.ts';
import { DEFAULT_FILE_LIMITS, type FileLimits } from './limits.ts';
import { Mailbox } from './mailbox.ts';
import { parseSteps, type ItemCache, type ParseResult } from './parse.ts';
import { formatProblems, type Problems } from './problem.ts';
import { decodeText } from './read.ts';
import type { WatchDirectory } from './watch-directories.ts';
import { FileWatcher } from './watch.ts';

export interface FileLoaderOptions {
  readonly path: string;
  /** Default: the real one. */
  readonly clock?: Clock;
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

/** Parsing gives way to other work after this long. Milliseconds. */
const SLICE_MS = 10;

/** Follows a state file and hands out each valid state of it. */
export class FileLoader {
  readonly #path: string;
  readonly #clock: Clock;
  readonly #limits: FileLimits;
  readonly #watchDirectory: WatchDirectory | undefined;
  #cache: ItemCache | undefined;
  /** Why the file cannot be read now. */
  #readError: KpngError | undefined;
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
  }

  snapshot(): FileSnapshot {
    const error = this.#readError ?? this.#contentError?.error;
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
    const mailbox = new Mailbox<Uint8Array>();
    const stop = (): void => mailbox.close();
    signal.addEventListener('abort', stop, { once: true });
    const watcher = this.#watcher(mailbox);
    watcher.start();
    try {
      for (let bytes = await mailbox.take(); bytes !== undefined; bytes = await mailbox.take()) {
        const state = await this.#load(bytes, signal);
        if (state !== undefined && !signal.aborted) onState(state);
      }
    } finally {
      signal.removeEventListener('abort', stop);
      watcher.close();
      clearInterval(keepAlive);
    }
  }

  #watcher(mailbox: Mailbox<Uint8Array>): FileWatcher {
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

  async #load(bytes: Uint8Array, signal: AbortSignal): Promise<GlobalState | undefined> {
    const startedAt = this.#clock.now();
    const decoded = decodeText(bytes);
    if (!decoded.ok) {
      this.#refused({ first: [decoded.problem], total: 1 });
      return undefined;
    }
    const result = await this.#parse(decoded.text, signal);
    if (result === undefined) return undefined;
    this.#cache = result.cache;
    if (!result.ok) {
      this.#refused(result.errors);
      return undefined;
    }
    const { state, warnings, parsedItems } = result;
    this.#loads += 1;
    this.#contentError = undefined;
    this.#lastLoadAtMs = this.#clock.now();
    if (fileLoaded.hasSubscribers) {
      fileLoaded.publish({
        path: this.#path,
        services: state.services.size,
        nodes: state.nodes.size,
        parsedItems,
        bytes: bytes.length,
        durationMs: this.#lastLoadAtMs - startedAt,
        warnings,
      });
    }
    return state;
  }

  /** Parses in slices, so that a large file does not hold up connections. Undefined when aborted. */
  async #parse(text: string, signal: AbortSignal): Promise<ParseResult | undefined> {
    const steps = parseSteps(text, { limits: this.#limits, cache: this.#cache });
    let sliceEnd = performance.now() + SLICE_MS;
    for (;;) {
      const step = steps.next();
      if (step.done === true) return step.value;
      if (performance.now() < sliceEnd) continue;
      await nextTurn();
      if (signal.aborted) return undefined;
      sliceEnd = performance.now() + SLICE_MS;
    }
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
    this.#readFailures += 1;
    this.#readError = error;
    if (fileReadFailed.hasSubscribers) fileReadFailed.publish({ path: this.#path, error });
  }

  #recovered(): void {
    this.#readError = undefined;
    if (this.#contentError !== undefined) this.#tellInvalid(this.#contentError);
    else if (fileRecovered.hasSubscribers) fileRecovered.publish({ path: this.#path });
  }
}
