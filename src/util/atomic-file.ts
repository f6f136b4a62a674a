import { randomUUID } from 'node:crypto';
import { open, rm } from 'node:fs/promises';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { renameOver } from './rename-over.ts';

/** Yields to other work after this long. Milliseconds. */
const SLICE_MS = 10;
/** Text is written in pieces of about this size. Characters. */
const PIECE = 256 * 1024;

/**
 * Writes a file atomically: to a temporary file beside it, which is then renamed over it, so that readers see all of
 * the old content or all of the new, even after a crash. Yields to other work meanwhile.
 */
export async function writeAtomically(path: string, pieces: Iterable<string>): Promise<void> {
  const temporary = `${path}.${randomUUID()}.tmp`;
  // It must not exist: a link planted by another user of the directory would be followed.
  const file = await open(temporary, 'wx');
  try {
    try {
      // Unlike `write`, it continues after a partial write, as on a disk that is nearly full.
      for await (const piece of larger(pieces)) await file.writeFile(piece);
      await file.sync();
    } finally {
      await file.close();
    }
    await renameOver(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

async function* larger(pieces: Iterable<string>): AsyncGenerator<string, void, undefined> {
  let sliceEnd = performance.now() + SLICE_MS;
  let buffered = '';
  for (const piece of pieces) {
    buffered += piece;
    if (buffered.length >= PIECE) {
      yield buffered;
      buffered = '';
    }
    if (performance.now() < sliceEnd) continue;
    await nextTurn();
    sliceEnd = performance.now() + SLICE_MS;
  }
  yield buffered;
}
