import { KpngError } from '../errors.ts';
import type { Clock } from '../util/clock.ts';
import * as events from './events.ts';
import { formatProblems, type Problems } from './problem.ts';

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
  /** How often the file could not be read, or not be parsed to its end, each cause counted once. */
  readonly readFailures: number;
  /** When a valid file was last loaded, by the clock that was given. Milliseconds. */
  readonly lastLoadAtMs: number | undefined;
}

/** Keeps the status of a state file, and publishes what is new about it. */
export class FileStatus {
  readonly #path: string;
  readonly #clock: Clock;
  /** Why the file cannot be read now. */
  #readError: KpngError | undefined;
  /** Why the content that was read last is not served: it has errors, or was not parsed to its end. */
  #contentError: Omit<events.FileInvalid, 'path'> | KpngError | undefined;
  #loads = 0;
  #invalid = 0;
  #readFailures = 0;
  #lastLoadAtMs: number | undefined;

  constructor(path: string, clock: Clock) {
    this.#path = path;
    this.#clock = clock;
  }

  snapshot(): FileSnapshot {
    const content = this.#contentError;
    const error = this.#readError ?? (content instanceof KpngError ? content : content?.error);
    const state = error === undefined ? 'loaded' : 'stale';
    return {
      path: this.#path,
      state: this.#loads === 0 ? 'waiting' : state,
      error,
      loads: this.#loads,
      invalid: this.#invalid,
      readFailures: this.#readFailures,
      lastLoadAtMs: this.#lastLoadAtMs,
    };
  }

  /** The file has new content, not parsed yet. */
  hasContent(): void {
    this.#readError = undefined;
  }

  loaded(event: Omit<events.FileLoaded, 'path'>): void {
    this.#loads += 1;
    this.#contentError = undefined;
    this.#lastLoadAtMs = this.#clock.now();
    if (events.fileLoaded.hasSubscribers) {
      events.fileLoaded.publish({ path: this.#path, ...event });
    }
  }

  refused(errors: Problems): void {
    const count = errors.total === 1 ? 'an error' : `${errors.total} errors`;
    const served = this.#loads > 0;
    const kept = served ? 'the last known state is kept' : 'no state is served yet';
    const message = `the state file has ${count}; ${kept}\n${formatProblems(this.#path, errors)}`;
    this.#invalid += 1;
    this.#contentError = {
      error: new KpngError('KPNG_STATE_FILE_INVALID', message),
      errors,
      served,
    };
    this.#publishContentError();
  }

  readFailed(error: KpngError): void {
    this.#readError = error;
    this.#readFailures += 1;
    this.#publishFailed(error);
  }

  /** It is not known whether the content is valid. Published once for each cause. */
  parserEnded(error: KpngError): void {
    const previous = this.#contentError;
    this.#contentError = error;
    if (previous instanceof KpngError && previous.message === error.message) return;
    this.#readFailures += 1;
    this.#publishFailed(error);
  }

  /** The file can be read again and has the content of before. */
  recovered(): void {
    this.#readError = undefined;
    if (this.#contentError !== undefined) this.#publishContentError();
    else if (events.fileRecovered.hasSubscribers)
      events.fileRecovered.publish({ path: this.#path });
  }

  #publishContentError(): void {
    const content = this.#contentError;
    if (content instanceof KpngError) this.#publishFailed(content);
    else if (content !== undefined && events.fileInvalid.hasSubscribers) {
      events.fileInvalid.publish({ path: this.#path, ...content });
    }
  }

  #publishFailed(error: KpngError): void {
    if (!events.fileReadFailed.hasSubscribers) return;
    events.fileReadFailed.publish({ path: this.#path, error });
  }
}
