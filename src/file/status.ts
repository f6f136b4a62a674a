import { KpngError } from '../errors.ts';
import type { Clock } from '../util/clock.ts';
import * as events from './events.ts';
import { formatProblems, type Problems } from './problem.ts';

/** The status of a state file, for health, metrics and status. */
export interface FileSnapshot {
  readonly path: string;
  /** `waiting`: nothing loaded yet. `stale`: the last state is served because the file has an error. */
  readonly state: 'waiting' | 'loaded' | 'stale';
  /** Why the current file is not served. */
  readonly error: KpngError | undefined;
  /** Number of loads of a valid file. */
  readonly loads: number;
  /** Number of invalid contents. */
  readonly invalid: number;
  /** Number of failures to read or completely parse the file, counted once per cause. */
  readonly readFailures: number;
  /** Time of the last load of a valid file, by the given clock. Milliseconds. */
  readonly lastLoadAtMs: number | undefined;
}

/** Tracks the status of a state file and publishes changes. */
export class FileStatus {
  readonly #path: string;
  readonly #clock: Clock;
  /** Why the file cannot currently be read. */
  #readError: KpngError | undefined;
  /** Why the last content is not served: it has errors, or was not parsed completely. */
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

  /** The content may be valid or not. Published once for each cause. */
  parserEnded(error: KpngError): void {
    const previous = this.#contentError;
    this.#contentError = error;
    if (previous instanceof KpngError && previous.message === error.message) return;
    this.#readFailures += 1;
    this.#publishFailed(error);
  }

  /** The file can be read again and has its previous content. */
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
