import { SYNC_FRAME } from '../api/frames.ts';
import type { ChangeSet } from '../store/reader.ts';

/** Frames are joined to pieces of at most this size; a larger one is a piece of its own. Bytes. */
const PIECE = 64 * 1024;

/** The pieces for many clients are joined with their Sync only once. */
const withSync = new WeakMap<Buffer, Buffer>();

/** A change set with its Sync, if it fits in one piece; undefined: it is larger. */
export function onePiece(changes: ChangeSet): Buffer | undefined {
  if (!Array.isArray(changes) || changes.length > 1) return undefined;
  const [frames] = changes as Buffer[];
  if (frames === undefined) return SYNC_FRAME;
  let joined = withSync.get(frames);
  if (joined === undefined) {
    joined = Buffer.concat([frames, SYNC_FRAME]);
    withSync.set(frames, joined);
  }
  return joined;
}

/**
 * A change set in pieces of a useful size, with a Sync at the end. Each piece is valid until the next one is
 * requested: they share the same memory, since a state for a thousand clients would otherwise leave gigabytes to the
 * garbage collector.
 */
export function* piecesOf(changes: ChangeSet): Generator<Buffer, void, undefined> {
  const piece = Buffer.allocUnsafeSlow(PIECE);
  let length = 0;
  for (const frame of withEnd(changes)) {
    if (length + frame.length > PIECE) {
      if (length > 0) yield piece.subarray(0, length);
      length = 0;
    }
    if (frame.length > PIECE) {
      yield frame;
      continue;
    }
    piece.set(frame, length);
    length += frame.length;
  }
  if (length > 0) yield piece.subarray(0, length);
}

function* withEnd(changes: ChangeSet): Generator<Buffer, void, undefined> {
  yield* changes;
  yield SYNC_FRAME;
}
