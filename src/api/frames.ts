/**
 * Operations in their wire form: an OpItem after the five bytes that gRPC puts before every message (compression flag
 * and length). A frame can be written unchanged to any number of streams, and several frames in one piece.
 */
import { OpItem, type Set } from './generated/localv1/api.ts';

/** Bytes before each message. */
const PREFIX_LENGTH = 5;

/** The change set is complete. */
export const SYNC_FRAME = frame({ $case: 'sync', value: {} });

/** The full data set follows. */
export const RESET_FRAME = frame({ $case: 'reset', value: {} });

/** Adds or replaces an entry; `bytes` is the encoding of the message that belongs to the set. */
export function setFrame(set: number, path: string, bytes: Uint8Array): Buffer {
  return frame({ $case: 'set', value: { ref: { set: set as Set, path }, bytes: bytes as Buffer } });
}

export function deleteFrame(set: number, path: string): Buffer {
  return frame({ $case: 'delete', value: { set: set as Set, path } });
}

/** Number of operations in whole frames. */
export function countFrames(frames: Buffer): number {
  let count = 0;
  for (let at = 0; at < frames.length; at += PREFIX_LENGTH + frames.readUInt32BE(at + 1)) count++;
  return count;
}

function frame(op: OpItem['op']): Buffer {
  const message = OpItem.encode({ op }).finish();
  const framed = Buffer.allocUnsafe(PREFIX_LENGTH + message.length);
  framed[0] = 0;
  framed.writeUInt32BE(message.length, 1);
  framed.set(message, PREFIX_LENGTH);
  return framed;
}
