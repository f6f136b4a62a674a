/**
 * Reads the requests of a call from the HTTP/2 stream below it.
 *
 * grpc-js passes each message through a queue, a promise and a second stream: a fifth of the cost of a change for a
 * thousand clients.
 */
import { status } from '@grpc/grpc-js';
import { ByteBuffer } from '../util/byte-buffer.ts';
import { http2StreamOf, type BytesCall } from './http2-stream.ts';

export interface RequestReader {
  /** Stops reading; requests already received may still be passed on. */
  pause(): void;
  resume(): void;
  isPaused(): boolean;
}

export interface RequestReaderOptions {
  /** Bytes. */
  readonly maxMessageSize: number;
  readonly onRequest: (request: Buffer) => void;
  /** The client has ended its side. */
  readonly onEnd: () => void;
  /** The data is invalid: the call has to end with this status. */
  readonly onBroken: (code: status, problem: string) => void;
}

/** To be called in the call's handler, before it is read. */
export function readRequests(call: BytesCall, options: RequestReaderOptions): RequestReader {
  const stream = http2StreamOf(call);
  if (stream === undefined) {
    call.on('data', options.onRequest);
    call.on('end', options.onEnd);
    return call;
  }
  const messages = new Messages(options);
  stream.removeAllListeners('data');
  stream.on('data', (chunk: Buffer) => messages.take(chunk));
  stream.once('end', options.onEnd);
  stream.resume();
  return stream;
}

/** Bytes before each message: a flag for compression and the length. */
const PREFIX = 5;

/** Splits a stream of bytes into messages. */
export class Messages {
  readonly #options: Omit<RequestReaderOptions, 'onEnd'>;
  /** The beginning of a message, and the number of bytes needed to continue. */
  readonly #begun = new ByteBuffer();
  #wanted = PREFIX;
  #broken = false;

  constructor(options: Omit<RequestReaderOptions, 'onEnd'>) {
    this.#options = options;
  }

  take(chunk: Buffer): void {
    if (this.#broken) return;
    let rest = chunk;
    if (this.#begun.length > 0) {
      this.#begun.append(chunk);
      if (this.#begun.length < this.#wanted) return;
      rest = this.#begun.take();
    }
    this.#wanted = PREFIX;
    while (rest.length >= PREFIX) {
      const end = this.#endOf(rest);
      if (end === undefined) return;
      this.#wanted = end;
      if (rest.length < end) break;
      this.#options.onRequest(rest.subarray(PREFIX, end));
      rest = rest.subarray(end);
      this.#wanted = PREFIX;
    }
    if (rest.length > 0) this.#begun.append(rest);
  }

  /** The end of the first message; undefined: it is refused. */
  #endOf(bytes: Buffer): number | undefined {
    const { maxMessageSize, onBroken } = this.#options;
    const length = bytes.readUInt32BE(1);
    const compressed = bytes[0] !== 0;
    if (!compressed && length <= maxMessageSize) return PREFIX + length;
    this.#broken = true;
    if (compressed) onBroken(status.UNIMPLEMENTED, 'compressed requests are not supported');
    else {
      onBroken(
        status.RESOURCE_EXHAUSTED,
        `a request of ${length} bytes exceeds the limit of ${maxMessageSize}`,
      );
    }
    return undefined;
  }
}
