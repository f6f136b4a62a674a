/**
 * Writes ready frames to a call, several of them in one piece.
 *
 * grpc-js encodes and copies each message of each call anew, which for a thousand clients costs twice
 * as much as everything else that a change costs. So what is the same for many clients is written
 * right into the HTTP/2 stream below the call. grpc-js does not offer that stream; where it cannot be
 * found, the messages go through grpc-js one by one.
 */
import { Metadata, type ServerDuplexStream } from '@grpc/grpc-js';
import type { ServerHttp2Stream } from 'node:http2';
import { Duplex } from 'node:stream';

/** A call whose messages are bytes. */
export type BytesCall = ServerDuplexStream<Buffer, Uint8Array>;

export interface FrameWriter {
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
  // grpc-js listens to the first error only, and says itself that the call is over.
  stream.on('error', () => {});
  return {
    write(frames, onTaken) {
      if (stream.writable) stream.write(frames, onTaken);
      else if (onTaken !== undefined) setImmediate(onTaken);
    },
  };
}

/** The field of grpc-js 1.14's call objects that holds the stream. */
function http2StreamOf(call: BytesCall): ServerHttp2Stream | undefined {
  const inner: unknown = 'call' in call ? call.call : undefined;
  if (typeof inner !== 'object' || inner === null || !('stream' in inner)) return undefined;
  const { stream } = inner;
  return stream instanceof Duplex && 'headersSent' in stream && 'respond' in stream
    ? (stream as ServerHttp2Stream)
    : undefined;
}

/** Takes frames apart again. */
export function messageWriter(call: BytesCall): FrameWriter {
  return {
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
