import type { ServerDuplexStream } from '@grpc/grpc-js';
import type { ServerHttp2Stream } from 'node:http2';

/** A call whose messages are bytes. */
export type BytesCall = ServerDuplexStream<Buffer, Uint8Array>;

/**
 * The HTTP/2 stream below a call, a field of the call objects of grpc-js 1.14, which does not offer it. grpc-js passes
 * each message of each call through queues, promises and copies, which for a thousand clients doubles the cost of a
 * change.
 */
export function http2StreamOf(call: object): ServerHttp2Stream {
  return (call as { readonly call: { readonly stream: ServerHttp2Stream } }).call.stream;
}
