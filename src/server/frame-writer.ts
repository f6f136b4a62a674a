/**
 * Writes ready-made frames to a call, several of them in one piece.
 *
 * grpc-js encodes and copies each message for each call, which for a thousand clients doubles the cost of a change.
 * So messages shared by many clients are written directly to the HTTP/2 stream below the call.
 */
import { Metadata } from '@grpc/grpc-js';
import { http2StreamOf, type BytesCall } from './http2-stream.ts';

export interface FrameWriter {
  /** Whether much of the written data is still unsent. */
  readonly isBehind: boolean;
  /**
   * Writes whole frames. `onTaken` is called when they are sent, or never will be; until then they must not be
   * changed.
   */
  write(frames: Buffer, onTaken?: () => void): void;
}

export function frameWriter(call: BytesCall): FrameWriter {
  // The stream must have its headers before bytes are written to it.
  call.sendMetadata(new Metadata());
  const stream = http2StreamOf(call);
  if (stream === undefined || !stream.headersSent) return messageWriter(call);
  // grpc-js listens only to the first error, and itself reports the end of the call.
  stream.on('error', () => {});
  return {
    get isBehind() {
      return stream.writableNeedDrain;
    },
    write(frames, onTaken) {
      if (stream.writable) stream.write(frames, onTaken);
      else if (onTaken !== undefined) setImmediate(onTaken);
    },
  };
}

/** Sends the messages of frames through grpc-js. */
export function messageWriter(call: BytesCall): FrameWriter {
  return {
    get isBehind() {
      return call.writableNeedDrain;
    },
    write(frames, onTaken) {
      for (let at = 0; at < frames.length;) {
        const end = at + 5 + frames.readUInt32BE(at + 1);
        const message = frames.subarray(at + 5, end);
        if (end < frames.length) call.write(message);
        else call.write(message, onTaken);
        at = end;
      }
    },
  };
}
