/**
 * Operations in their wire form: an OpItem after the five bytes that gRPC puts before every message (compression flag
 * and length). A frame can be written unchanged to any number of streams, and several frames in one piece.
 */
import { BinaryWriter } from '@bufbuild/protobuf/wire';

/** Bytes before each message. */
const PREFIX_LENGTH = 5;
/** Tags of protobuf fields with a length: the field's number and the wire type 2. */
const tag = (field: number): number => (field << 3) | 2;
/** Of an OpItem. */
const SYNC = tag(1);
const SET = tag(2);
const DELETE = tag(3);
const RESET = tag(4);
/** Of a Value. */
const REF = tag(1);
const BYTES = tag(2);
/** Of a Ref: the set is a number, the path a text. */
const REF_SET = 1 << 3;
const REF_PATH = tag(2);

/** The change set is complete. */
export const SYNC_FRAME = frame(new BinaryWriter().uint32(SYNC).fork().join());

/** The full data set follows. */
export const RESET_FRAME = frame(new BinaryWriter().uint32(RESET).fork().join());

/** Adds or replaces an entry; `value` is the encoding of the message that belongs to the set. */
export function setFrame(set: number, path: string, value: Uint8Array): Buffer {
  const writer = new BinaryWriter().uint32(SET).fork();
  writer.uint32(REF).fork().uint32(REF_SET).uint32(set).uint32(REF_PATH).string(path).join();
  // Like any default value, empty bytes are left out.
  if (value.length > 0) writer.uint32(BYTES).bytes(value);
  return frame(writer.join());
}

export function deleteFrame(set: number, path: string): Buffer {
  const writer = new BinaryWriter().uint32(DELETE).fork();
  return frame(writer.uint32(REF_SET).uint32(set).uint32(REF_PATH).string(path).join());
}

/** Number of operations in whole frames. */
export function countFrames(frames: Buffer): number {
  let count = 0;
  for (let at = 0; at < frames.length; at += PREFIX_LENGTH + frames.readUInt32BE(at + 1)) count++;
  return count;
}

function frame(writer: BinaryWriter): Buffer {
  const message = writer.finish();
  const framed = Buffer.allocUnsafe(PREFIX_LENGTH + message.length);
  framed[0] = 0;
  framed.writeUInt32BE(message.length, 1);
  framed.set(message, PREFIX_LENGTH);
  return framed;
}
