import { stat } from 'node:fs/promises';
import { KpngError } from '../errors.ts';
import type { Clock, Timer } from '../util/clock.ts';
import type { FileLimits } from './limits.ts';
import { causeOf, readContent, signatureOf, type FileContent } from './read.ts';
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
  onContent(bytes: Uint8Array<ArrayBuffer>): void;
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

  /** Reads the file again, and hands out its content even if that is the same as before. */
  again(): void {
    this.#digest = undefined;
    this.#changed();
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
    // While a read is under way, the end of it sets the timer.
    if (this.#reading) return;
    this.#settleTimer = clock.setTimer(wait, () => void this.#read());
  }

  async #read(): Promise<void> {
    this.#reading = true;
    const changedAt = this.#changedAt;
    this.#changedAt = undefined;
    // Watch first: what happens between the two then causes another read.
    await this.#watchDirectories();
    const { path, limits } = this.#options;
    const result = await readContent(path, limits.maxFileBytes);
    const seen = result instanceof KpngError ? await look(path) : result.signature;
    this.#reading = false;
    if (this.#closed) return;
    if (this.#changedAt !== undefined) this.#changed();
    if (!(result instanceof KpngError) && !result.settled && !this.#isLate(changedAt)) {
      this.#changedAt = changedAt;
      this.#changed();
      return;
    }
    this.#seen = seen;
    if (result instanceof KpngError) this.#failed(result);
    else this.#took(result);
  }

  /** Whether a change was noticed so long ago that the file is taken as it is. */
  #isLate(changedAt: number | undefined): boolean {
    const { clock, limits } = this.#options;
    return changedAt !== undefined && clock.now() - changedAt >= limits.maxSettleMs;
  }

  #took({ bytes, digest }: FileContent): void {
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

  #failed(error: KpngError): void {
    this.#suspicious = false;
    if (this.#error === error.message) return;
    this.#error = error.message;
    this.#options.onError(error);
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
