import { watch, type BigIntStats, type FSWatcher } from 'node:fs';
import { stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { KpngError } from '../errors.ts';
import { pause, type Clock } from './clock.ts';
import { readContent, type FileContent, type FileKind } from './read-content.ts';

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
  /** The file cannot be read. Called once for each cause until it can be read again, or `again` is called. */
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
  readonly #closing = new AbortController();
  /** Ends the wait for the next check. */
  #hint = new AbortController();
  /** The status of what was read last. */
  #read: string | undefined;
  #status: string | undefined;
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
    void this.#follow();
  }

  /** Stops watching; no callback is called after it. Idempotent. */
  close(): void {
    this.#closing.abort();
    this.#hint.abort();
    this.#directory?.watcher?.close();
  }

  /** Reads the file again and passes on its content, or the error, even if it is unchanged. */
  again(): void {
    this.#digest = undefined;
    this.#error = undefined;
    this.#read = undefined;
    this.#hint.abort();
  }

  async #follow(): Promise<void> {
    const { clock, limits } = this.#options;
    const { signal } = this.#closing;
    while (!signal.aborted) {
      this.#hint = new AbortController();
      await this.#check();
      const hint = this.#hint.signal;
      if (this.#changedAt !== undefined) await pause(limits.settleMs, clock, signal);
      else await pause(limits.pollMs, clock, hint);
      if (hint.aborted) await pause(HINT_MS, clock, signal);
    }
  }

  async #check(): Promise<void> {
    await this.#watchDirectory();
    const { clock, limits, path, kind } = this.#options;
    const isFirst = this.#status === undefined;
    const status = await statusOf(path);
    const isQuiet = isFirst || status === this.#status;
    this.#status = status;
    this.#changedAt = status === this.#read ? undefined : (this.#changedAt ?? clock.now());
    const isLate = (): boolean => clock.now() - (this.#changedAt ?? 0) >= limits.maxSettleMs;
    if (this.#changedAt !== undefined && (isQuiet || isLate())) {
      const result = await readContent(path, limits.maxFileBytes, kind);
      const isSettled = (await statusOf(path)) === status;
      if (this.#closing.signal.aborted) return;
      // Otherwise, another program wrote to it in between.
      if (isSettled || isLate()) this.#take(result, status);
    }
  }

  #take(result: FileContent | KpngError, status: string): void {
    const before = this.#error;
    this.#error = result instanceof KpngError ? result.message : undefined;
    this.#changedAt = undefined;
    // Read again later: a failure may pass, and a second write in the same tick of the file system's clock happen,
    // without a trace.
    this.#read = undefined;
    if (result instanceof KpngError) {
      if (this.#error !== before) this.#options.onError(result);
    } else if (result.digest !== this.#digest) {
      this.#digest = result.digest;
      this.#options.onContent(result.bytes);
    } else {
      this.#read = status;
      if (before !== undefined) this.#options.onRecovered();
    }
  }

  /**
   * Never fails: if the directory is missing or the system has no watches left, polling finds the change a little
   * later.
   */
  async #watchDirectory(): Promise<void> {
    const path = dirname(this.#options.path);
    const stats = await stat(path, { bigint: true }).catch(() => undefined);
    const identity = `${stats?.dev}:${stats?.ino}`;
    if (this.#closing.signal.aborted || identity === this.#directory?.identity) return;
    this.#directory?.watcher?.close();
    this.#directory = { identity, watcher: stats && this.#startWatching(path) };
  }

  #startWatching(path: string): FSWatcher | undefined {
    try {
      const watcher = watch(path, { persistent: false }, () => this.#hint.abort());
      watcher.on('error', () => watcher.close());
      return watcher;
    } catch {
      return undefined;
    }
  }
}

/**
 * The file's signature, or the error. It changes whenever a file is written to, renamed over or swapped, except by a
 * write of the same size within one tick of the file system's clock.
 */
function statusOf(path: string): Promise<string> {
  const signatureOf = ({ dev, ino, size, mtimeNs, ctimeNs }: BigIntStats): string =>
    `${dev}:${ino}:${size}:${mtimeNs}:${ctimeNs}`;
  return stat(path, { bigint: true }).then(signatureOf, String);
}
