import { randomUUID } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { rename, rm } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { Backoff } from './backoff.ts';

/**
 * Writes a file atomically: to a temporary file beside it, which is then renamed over it, so that readers see all of
 * the old content or all of the new, even after a crash. Yields to other work meanwhile.
 */
export async function writeAtomically(path: string, pieces: Iterable<string>): Promise<void> {
  const temporary = `${path}.${randomUUID()}.tmp`;
  try {
    // It must not exist: a link planted by another user of the directory would be followed.
    const file = createWriteStream(temporary, { flags: 'wx', flush: true });
    await pipeline(Readable.from(pieces), file);
    await renameOver(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

/** Windows errors while another program has the file open. */
const HELD: ReadonlySet<string> = new Set(['EPERM', 'EACCES', 'EBUSY']);

const WAITS = { initialMs: 10, maxMs: 250, factor: 2, jitter: 0 };
/** About two seconds in all: readers, virus scanners and indexers take less for a file. */
const ATTEMPTS = 12;

export interface RenameOptions {
  readonly platform?: NodeJS.Platform;
  readonly rename?: (from: string, to: string) => Promise<void>;
  readonly wait?: (ms: number) => Promise<unknown>;
}

/**
 * Renames a file over another one. Linux allows that even while the other one is open. Windows refuses while any
 * program has it open, even only to read it: there it is retried for two seconds. Rejects with the system's error.
 */
export async function renameOver(
  from: string,
  to: string,
  { platform = process.platform, rename: move = rename, wait = delay }: RenameOptions = {},
): Promise<void> {
  const backoff = new Backoff(WAITS, Math.random);
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await move(from, to);
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code ?? '';
      if (platform !== 'win32' || !HELD.has(code) || attempt === ATTEMPTS) throw error;
    }
    await wait(backoff.next());
  }
}
