import type { ServerDuplexStream } from '@grpc/grpc-js';
import type { ServerHttp2Stream } from 'node:http2';
import { Duplex } from 'node:stream';

/** A call whose messages are bytes. */
export type BytesCall = ServerDuplexStream<Buffer, Uint8Array>;

/**
 * The HTTP/2 stream below a call, which grpc-js does not offer: a field of the call objects of grpc-js 1.14.
 * Undefined if it cannot be found; then everything is sent through grpc-js, which takes twice as long per message.
 */
export function http2StreamOf(call: object): ServerHttp2Stream | undefined {
  const inner: unknown = 'call' in call ? call.call : undefined;
  if (typeof inner !== 'object' || inner === null || !('stream' in inner)) return undefined;
  const { stream } = inner;
  return stream instanceof Duplex && 'headersSent' in stream && 'respond' in stream
    ? (stream as ServerHttp2Stream)
    : undefined;
}
