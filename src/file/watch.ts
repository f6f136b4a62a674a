import { stat } from 'node:fs/promises';
import { KpngError } from '../errors.ts';
import type { Clock, Timer } from '../util/clock.ts';
import type { FileLimits } from './limits.ts';
import { readContent } from './read.ts';
import { causeOf, signatureOf } from './signature.ts';
import {
  directoriesOf,
  watchDirectory as watchWithNode,
  type Closable,
  type WatchDirectory,
} from './watch-directories.ts';

export interface FileWatcherOptions {
  readonly path: string;
  readonly limits: FileLimits;
  readonly clock: Clock;
  /** The content at the start and after each change, once the file has been quiet for a moment. */
  onContent(bytes: Uint8Array): void;
  /** The file cannot be read. Called once for each cause until it can be read again. */
  onError(error: KpngError): void;
  /** The file can be read again and has the content that it had before the error. */
  onRecovered(): void;
  /** Default: `fs.watch`. */
  readonly watchDirectory?: WatchDirectory | undefined;
}

/**
 * Follows the content of one file, by whatever means it is changed: writing to it, renaming another
 * file over it, swapping a symbolic link or a directory on the way to it, removing and creating it.
 *
 * The system's events make it fast; a look at the file every `pollMs` makes it certain. A file
 * that is being written is left alone until it has been quiet for `settleMs`, but not for longer
 * than `maxSettleMs`.
 */
export class FileWatcher {
  readonly #options: FileWatcherOptions;
  readonly #directories = new Map<string, Closable>();
  #closed = false;
  #pollTimer: Timer | undefined;
  #settleTimer: Timer | undefined;
  /** When the first change that was not read yet was noticed. */
  #changedAt: number | undefined;
  #reading = false;
  /** What the last look or read found: a signature, or the cause of an error. */
  #seen: string | undefined;
  /** The next look reads even if nothing seems to have changed. */
  #suspicious = false;
  #digest: string | undefined;
  #error: string | undefined;

  constructor(options: FileWatcherOptions) {
    this.#options = options;
  }

  /** Reads the file now and follows it from then on. */
  start(): void {
    this.#changedAt = this.#options.clock.now();
    void this.#read();
    this.#schedulePoll();
  }

  /** Ends everything; no callback is called after it. Idempotent. */
  close(): void {
    this.#closed = true;
    this.#pollTimer?.cancel();
    this.#settleTimer?.cancel();
    for (const directory of this.#directories.values()) directory.close();
    this.#directories.clear();
  }

  #schedulePoll(): void {
    const { clock, limits } = this.#options;
    this.#pollTimer = clock.setTimer(limits.pollMs, () => void this.#poll());
  }

  async #poll(): Promise<void> {
    const seen = await look(this.#options.path);
    if (this.#closed) return;
    if (seen !== this.#seen || this.#suspicious) this.#changed();
    this.#schedulePoll();
  }

  /** Something may have changed: read when it is quiet, or when it has not been for too long. */
  #changed(): void {
    if (this.#closed) return;
    const { clock, limits } = this.#options;
    const now = clock.now();
    this.#changedAt ??= now;
    const latest = this.#changedAt + limits.maxSettleMs;
    const wait = Math.max(0, Math.min(limits.settleMs, latest - now));
    this.#settleTimer?.cancel();
    this.#settleTimer = clock.setTimer(wait, () => void this.#read());
  }

  async #read(): Promise<void> {
    // A change that is noticed while reading sets the timer again, so nothing is missed here.
    if (this.#reading) return this.#changed();
    this.#reading = true;
    const changedAt = this.#changedAt;
    this.#changedAt = undefined;
    // Watch first: what happens between the two then causes another read.
    await this.#watchDirectories();
    const { path, limits } = this.#options;
    const result = await readContent(path, limits.maxFileBytes).catch((error: unknown) => error);
    this.#reading = false;
    if (this.#closed) return;
    if (result instanceof Error) {
      this.#failed(result, await look(path));
      return;
    }
    const { bytes, digest, signature, settled } = result as Awaited<ReturnType<typeof readContent>>;
    const { clock } = this.#options;
    const patience = (changedAt ?? clock.now()) + limits.maxSettleMs > clock.now();
    if (!settled && patience) {
      this.#changedAt = changedAt;
      this.#changed();
      return;
    }
    this.#seen = signature;
    this.#took(bytes, digest);
  }

  #took(bytes: Uint8Array, digest: string): void {
    const recovered = this.#error !== undefined;
    this.#error = undefined;
    // A second write in the same tick of the file system's clock leaves no other trace.
    this.#suspicious = digest !== this.#digest;
    if (digest !== this.#digest) {
      this.#digest = digest;
      this.#options.onContent(bytes);
    } else if (recovered) {
      this.#options.onRecovered();
    }
  }

  #failed(error: Error, seen: string): void {
    if (this.#closed) return;
    this.#seen = seen;
    this.#suspicious = false;
    if (this.#error === error.message) return;
    this.#error = error.message;
    const { path } = this.#options;
    this.#options.onError(
      error instanceof KpngError
        ? error
        : new KpngError('KPNG_STATE_FILE_READ', `cannot read the state file ${path}`, {
            cause: error,
          }),
    );
  }

  async #watchDirectories(): Promise<void> {
    const { path, watchDirectory = watchWithNode } = this.#options;
    const wanted = new Map((await directoriesOf(path)).map((found) => [found.identity, found]));
    if (this.#closed) return;
    for (const [identity, directory] of this.#directories) {
      if (wanted.has(identity)) continue;
      directory.close();
      this.#directories.delete(identity);
    }
    for (const [identity, directory] of wanted) {
      if (this.#directories.has(identity)) continue;
      this.#directories.set(
        identity,
        watchDirectory(directory, () => this.#changed()),
      );
    }
  }
}

/** The file's signature, or why there is none. */
async function look(path: string): Promise<string> {
  try {
    return signatureOf(await stat(path, { bigint: true }));
  } catch (error) {
    return causeOf(error);
  }
}
