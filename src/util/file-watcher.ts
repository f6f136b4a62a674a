import { watch, type BigIntStats, type FSWatcher } from 'node:fs';
import { stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { KpngError } from '../errors.ts';
import { pause, type Clock } from './clock.ts';
import { readContent, type FileContent, type FileKind } from './read-content.ts';

export interface FileWatcherOptions {
  readonly path: string;
  readonly kind: FileKind;
  /** As those of `CONFIG_LIMITS`. */
  readonly limits: Readonly<Record<'maxFileBytes' | 'settleMs' | 'maxSettleMs' | 'pollMs', number>>;
  readonly clock: Clock;
  /** The content at the start and after each change, once the file has been quiet for a moment. */
  readonly onContent: (bytes: Uint8Array<ArrayBuffer>) => void;
  /** The file cannot be read. Called once for each cause until it can be read again, or `again` is called. */
  readonly onError: (error: KpngError) => void;
  /** The file can be read again and has the content that it had before the error. */
  readonly onRecovered: () => void;
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
export function watchFile(options: FileWatcherOptions) {
  const { path, kind, limits, clock, onContent, onError, onRecovered } = options;
  const closing = new AbortController();
  /** Ends the wait for the next check. */
  let hint = new AbortController();
  let status: string | undefined;
  /** The status of what was read last. */
  let readStatus: string | undefined;
  /** When the unread change was noticed. */
  let changedAt: number | undefined;
  let digest: string | undefined;
  let problem: string | undefined;

  /**
   * Never fails: if the directory is missing or the system has no watches left, polling finds the change a little
   * later.
   */
  const watchDirectory = (): FSWatcher | undefined => {
    try {
      const watcher = watch(dirname(path), { persistent: false }, () => hint.abort());
      return watcher.on('error', () => watcher.close());
    } catch {
      return undefined;
    }
  };

  const take = (result: FileContent | KpngError, found: string): void => {
    const before = problem;
    problem = result instanceof KpngError ? result.message : undefined;
    changedAt = undefined;
    // Read again later: a failure may pass, and a second write in the same tick of the file system's clock happen,
    // without a trace.
    readStatus = undefined;
    if (result instanceof KpngError) {
      if (problem !== before) onError(result);
    } else if (result.digest !== digest) {
      digest = result.digest;
      onContent(result.bytes);
    } else {
      readStatus = found;
      if (before !== undefined) onRecovered();
    }
  };

  const check = async (): Promise<void> => {
    const found = await statusOf(path);
    const isQuiet = status === undefined || found === status;
    status = found;
    changedAt = found === readStatus ? undefined : (changedAt ?? clock.now());
    const isLate = (): boolean => clock.now() - (changedAt ?? 0) >= limits.maxSettleMs;
    if (changedAt === undefined || (!isQuiet && !isLate())) return;
    const result = await readContent(path, limits.maxFileBytes, kind);
    const isSettled = (await statusOf(path)) === found;
    if (closing.signal.aborted) return;
    // Otherwise, another program wrote to it in between.
    if (isSettled || isLate()) take(result, found);
  };

  const follow = async (): Promise<void> => {
    const { signal } = closing;
    while (!signal.aborted) {
      hint = new AbortController();
      const hinted = hint.signal;
      // Watching blocks the process while a network mount does not answer; this does not.
      await statusOf(path);
      // Again for each check: the path may name another directory now.
      const watcher = watchDirectory();
      await check();
      if (changedAt !== undefined) await pause(limits.settleMs, clock, signal);
      else await pause(limits.pollMs, clock, hinted);
      watcher?.close();
      if (hinted.aborted) await pause(HINT_MS, clock, signal);
    }
  };
  void follow();

  return {
    /** Reads the file again and passes on its content, or the error, even if it is unchanged. */
    again(): void {
      digest = problem = readStatus = undefined;
      hint.abort();
    },
    /** Stops watching; no callback is called after it. Idempotent. */
    close(): void {
      closing.abort();
      hint.abort();
    },
  };
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
