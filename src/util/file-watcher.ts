import { watch, type FSWatcher } from 'node:fs';
import { stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { KpngError } from '../errors.ts';
import type { Clock, Timer } from './clock.ts';
import { readContent, statusOf, type FileContent, type FileKind } from './read-content.ts';

export interface FileWatcherLimits {
  /** Largest file that is read. Bytes. */
  readonly maxFileBytes: number;
  /** A change is read once the file has been quiet for this long. Milliseconds. */
  readonly settleMs: number;
  /** A file that keeps changing is read after this long anyway. Milliseconds. */
  readonly maxSettleMs: number;
  /** Interval of the checks of the file's status. Milliseconds. */
  readonly pollMs: number;
}

export interface FileWatcherOptions {
  readonly path: string;
  readonly kind: FileKind;
  readonly limits: FileWatcherLimits;
  readonly clock: Clock;
  /** The content at the start and after each change, once the file has been quiet for a moment. */
  onContent(bytes: Uint8Array<ArrayBuffer>): void;
  /** The file cannot be read. Called once for each cause until it can be read again. */
  onError(error: KpngError): void;
  /** The file can be read again and has the content that it had before the error. */
  onRecovered(): void;
}

/** Events of a busy directory cause at most one check in this time. Milliseconds. */
const HINT_MS = 10;

/**
 * Follows the content of one file through every kind of change: writing to it, renaming another file over it,
 * swapping a symbolic link or a directory on the way to it, removing and creating it.
 *
 * The file's status, checked every `pollMs`, decides whether it has changed; events of its directory only cause an
 * earlier check. A file that is being written is not read until two checks, `settleMs` apart, find the same, but
 * not for longer than `maxSettleMs`.
 */
export class FileWatcher {
  readonly #options: FileWatcherOptions;
  #timer: Timer | undefined;
  #isLooking = false;
  #hinted = false;
  #closed = false;
  /** The last result: the file's signature, or the cause of an error. */
  #seen: string | undefined;
  #looked: string | undefined;
  /** When the unread change was noticed. */
  #changedAt: number | undefined;
  #digest: string | undefined;
  #error: string | undefined;
  #directory: { readonly identity: string; readonly watcher: FSWatcher | undefined } | undefined;

  constructor(options: FileWatcherOptions) {
    this.#options = options;
  }

  /** Reads the file now and follows it from then on. */
  start(): void {
    void this.#run(async () => this.#read());
  }

  /** Stops watching; no callback is called after it. Idempotent. */
  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
    this.#directory?.watcher?.close();
  }

  /** Reads the file again and passes on its content even if it is unchanged. */
  again(): void {
    this.#digest = undefined;
    this.#seen = undefined;
    this.#hint();
  }

  #hint(): void {
    if (this.#hinted) return;
    this.#hinted = true;
    if (!this.#isLooking) this.#schedule();
  }

  #schedule(): void {
    if (this.#closed) return;
    const { clock, limits } = this.#options;
    const idleMs = this.#hinted ? HINT_MS : limits.pollMs;
    this.#timer?.cancel();
    this.#timer = clock.setTimer(this.#changedAt === undefined ? idleMs : limits.settleMs, () => {
      void this.#run(async () => this.#check());
    });
  }

  async #run(work: () => Promise<void>): Promise<void> {
    this.#isLooking = true;
    this.#hinted = false;
    await this.#watchDirectory();
    await work();
    this.#isLooking = false;
    this.#schedule();
  }

  async #check(): Promise<void> {
    const { clock, limits, path } = this.#options;
    const found = await statusOf(path);
    const isQuiet = found === this.#looked;
    this.#looked = found;
    if (found === this.#seen) {
      this.#changedAt = undefined;
      return;
    }
    this.#changedAt ??= clock.now();
    if (isQuiet || clock.now() - this.#changedAt >= limits.maxSettleMs) await this.#read();
  }

  async #read(): Promise<void> {
    const { clock, limits, path, kind } = this.#options;
    // Before the attempt: a file that appears after it has failed must have another signature.
    const status = await statusOf(path);
    const result = await readContent(path, limits.maxFileBytes, kind);
    if (this.#closed) return;
    const isLate = clock.now() - (this.#changedAt ?? 0) >= limits.maxSettleMs;
    // Another program wrote to it in between.
    if (!(result instanceof KpngError) && !result.settled && !isLate) {
      this.#changedAt ??= clock.now();
      return;
    }
    this.#changedAt = undefined;
    if (result instanceof KpngError) this.#failed(result, status);
    else this.#took(result);
  }

  #took({ bytes, digest, signature }: FileContent): void {
    const recovered = this.#error !== undefined;
    this.#error = undefined;
    this.#looked = signature;
    // A second write in the same tick of the file system's clock leaves no trace: read again later.
    this.#seen = digest === this.#digest ? signature : undefined;
    if (digest !== this.#digest) {
      this.#digest = digest;
      this.#options.onContent(bytes);
    } else if (recovered) {
      this.#options.onRecovered();
    }
  }

  #failed(error: KpngError, status: string): void {
    this.#seen = status;
    if (this.#error === error.message) return;
    this.#error = error.message;
    this.#options.onError(error);
  }

  /**
   * Never fails: if the directory is missing or the system has no watches left, polling finds the change a little
   * later.
   */
  async #watchDirectory(): Promise<void> {
    const path = dirname(this.#options.path);
    const stats = await stat(path, { bigint: true }).catch(() => undefined);
    const identity = `${stats?.dev}:${stats?.ino}`;
    if (this.#closed || identity === this.#directory?.identity) return;
    this.#directory?.watcher?.close();
    this.#directory = { identity, watcher: stats && this.#startWatching(path) };
  }

  #startWatching(path: string): FSWatcher | undefined {
    try {
      const watcher = watch(path, { persistent: false }, () => this.#hint());
      watcher.on('error', () => watcher.close());
      return watcher;
    } catch {
      return undefined;
    }
  }
}
