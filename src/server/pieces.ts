import { SYNC_FRAME } from '../api/frames.ts';
import type { ChangeSet } from '../store/reader.ts';

/** Frames are joined to pieces of about this size. Bytes. */
const PIECE = 64 * 1024;

/** What many clients get is joined with its Sync once for all of them. */
const withSync = new WeakMap<Buffer, Buffer>();

/** A change set in pieces that are worth writing, with a Sync at the end. */
export function piecesOf(changes: ChangeSet): Iterator<Buffer> {
  if (Array.isArray(changes) && changes.length < 2) {
    const [only] = changes as Buffer[];
    return [only === undefined ? SYNC_FRAME : ended(only)].values();
  }
  return pieces(changes);
}

function ended(frames: Buffer): Buffer {
  let joined = withSync.get(frames);
  if (joined === undefined) {
    joined = Buffer.concat([frames, SYNC_FRAME]);
    withSync.set(frames, joined);
  }
  return joined;
}

function* pieces(frames: Iterable<Buffer>): Generator<Buffer, void, undefined> {
  let piece: Buffer[] = [];
  let length = 0;
  for (const frame of frames) {
    piece.push(frame);
    length += frame.length;
    if (length < PIECE) continue;
    yield Buffer.concat(piece, length);
    piece = [];
    length = 0;
  }
  piece.push(SYNC_FRAME);
  yield Buffer.concat(piece);
}
