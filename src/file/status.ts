import { KpngError } from '../errors.ts';
import * as events from './events.ts';
import { formatProblems, type Problems } from './problem.ts';

/** Publishes what becomes of a state file. */
export class FileStatus {
  readonly #path: string;
  /** Why the last content is not served: it has errors, or was not parsed completely. */
  #contentError: Omit<events.FileInvalid, 'path'> | KpngError | undefined;
  /** Whether there was a valid content. */
  #hasLoaded = false;

  constructor(path: string) {
    this.#path = path;
  }

  loaded(event: Omit<events.FileLoaded, 'path'>): void {
    this.#hasLoaded = true;
    this.#contentError = undefined;
    if (events.fileLoaded.hasSubscribers) {
      events.fileLoaded.publish({ path: this.#path, ...event });
    }
  }

  refused(errors: Problems): void {
    const count = errors.total === 1 ? 'an error' : `${errors.total} errors`;
    const served = this.#hasLoaded;
    const kept = served ? 'the last known state is kept' : 'no state is served yet';
    const message = `the state file has ${count}; ${kept}\n${formatProblems(this.#path, errors)}`;
    const error = new KpngError('KPNG_STATE_FILE_INVALID', message);
    this.#contentError = { error, errors, served };
    this.#publishContentError();
  }

  readFailed(error: KpngError): void {
    if (!events.fileReadFailed.hasSubscribers) return;
    events.fileReadFailed.publish({ path: this.#path, error });
  }

  /** The content may be valid or not. Published once for each cause. */
  parserEnded(error: KpngError): void {
    const previous = this.#contentError;
    this.#contentError = error;
    if (previous instanceof KpngError && previous.message === error.message) return;
    this.readFailed(error);
  }

  /** The file can be read again and has its previous content. */
  recovered(): void {
    if (this.#contentError !== undefined) this.#publishContentError();
    else if (events.fileRecovered.hasSubscribers)
      events.fileRecovered.publish({ path: this.#path });
  }

  #publishContentError(): void {
    const content = this.#contentError;
    if (content instanceof KpngError) this.readFailed(content);
    else if (content !== undefined && events.fileInvalid.hasSubscribers) {
      events.fileInvalid.publish({ path: this.#path, ...content });
    }
  }
}
