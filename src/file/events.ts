/** Events of the state file source, published on diagnostics channels. `path` is as configured. */
import { KpngError } from '../errors.ts';
import { typedChannel } from '../util/channel.ts';
import { formatProblems, type Problems } from './problem.ts';

/** The file was read and is valid. Published before a sink gets the state. */
export interface FileLoaded {
  path: string;
  services: number;
  nodes: number;
  /** Number of parsed service items; the others were unchanged. */
  parsedItems: number;
  bytes: number;
  durationMs: number;
  /** Parts of the file without effect, unless the last valid content had them too. */
  newWarnings: Problems;
}

/**
 * The file has errors. The previous state is kept. Published once for each content, and again when a file that could
 * not be read comes back with the same errors.
 */
export interface FileInvalid {
  path: string;
  /** KPNG_STATE_FILE_INVALID; its message lists the problems. */
  error: KpngError;
  errors: Problems;
  /** Whether a previous state is still served; otherwise there is none yet. */
  served: boolean;
}

/** The file cannot be read or completely parsed. It is retried; published once for each cause. */
export interface FileReadFailed {
  path: string;
  /** KPNG_STATE_FILE_READ, or KPNG_STATE_FILE_LIMIT when a limit of size, memory or time is exceeded. */
  error: KpngError;
}

/** The file can be read again and has its previous valid content. */
export interface FileRecovered {
  path: string;
}

export const fileLoaded = typedChannel<FileLoaded>('file:loaded');
export const fileInvalid = typedChannel<FileInvalid>('file:invalid');
export const fileReadFailed = typedChannel<FileReadFailed>('file:read-failed');
export const fileRecovered = typedChannel<FileRecovered>('file:recovered');

/** Publishes what becomes of a state file. */
export class FileStatus {
  readonly #path: string;
  /** Why the last content is not served: it has errors, or was not parsed completely. */
  #contentError: Omit<FileInvalid, 'path'> | KpngError | undefined;
  #hasLoaded = false;

  constructor(path: string) {
    this.#path = path;
  }

  loaded(event: Omit<FileLoaded, 'path'>): void {
    this.#hasLoaded = true;
    this.#contentError = undefined;
    fileLoaded.publish({ path: this.#path, ...event });
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
    fileReadFailed.publish({ path: this.#path, error });
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
    else fileRecovered.publish({ path: this.#path });
  }

  #publishContentError(): void {
    const content = this.#contentError;
    if (content instanceof KpngError) this.readFailed(content);
    else if (content !== undefined) fileInvalid.publish({ path: this.#path, ...content });
  }
}
