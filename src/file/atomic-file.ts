import { open, rm } from 'node:fs/promises';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { renameOver } from '../util/rename-over.ts';

/** Other work gets a turn after this long. Milliseconds. */
const SLICE_MS = 10;
/** Texts are written in pieces of about this size. Characters. */
const PIECE = 256 * 1024;

/**
 * Writes a file so that its readers see either the whole former content or the whole new one, even
 * after a crash: beside it, and then renamed over it. Making the pieces gives way to other work.
 */
export async function writeAtomically(path: string, pieces: Iterable<string>): Promise<void> {
  const temporary = `${path}.${process.pid}.tmp`;
  try {
    const file = await open(temporary, 'w');
    try {
      // Unlike `write`, it goes on after a write that was taken in part, as on a disk that is nearly full.
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
