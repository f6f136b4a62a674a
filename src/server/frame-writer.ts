/**
 * Writes ready frames to a call, several of them in one piece.
 *
 * grpc-js encodes and copies each message again for each call, which for a thousand clients costs twice
 * as much as everything else that a change costs. So what is the same for many clients is written
 * right into the HTTP/2 stream below the call.
 */
import { Metadata } from '@grpc/grpc-js';
import { http2StreamOf, type BytesCall } from './http2-stream.ts';

export interface FrameWriter {
  /** Whether much of the written data still waits for the client. */
  readonly isBehind: boolean;
  /**
   * Writes whole frames. `onTaken` is called when they have left, or never will; until then they must
   * not be changed.
   */
  write(frames: Buffer, onTaken?: () => void): void;
}

export function frameWriter(call: BytesCall): FrameWriter {
  // The stream must have its headers before bytes are written to it.
  call.sendMetadata(new Metadata());
  const stream = http2StreamOf(call);
  if (stream === undefined || !stream.headersSent) return messageWriter(call);
  // grpc-js only listens to the first error, and reports itself that the call has ended.
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

/** Takes frames apart again. */
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
