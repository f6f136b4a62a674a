import { status } from '@grpc/grpc-js';
import { ByteBuffer } from '../util/byte-buffer.ts';

export interface RequestReaderOptions {
  /** Bytes. */
  readonly maxMessageSize: number;
  readonly onRequest: (request: Buffer) => void;
  /** The data is invalid: the call has to end with this status. */
  readonly onBroken: (code: status, problem: string) => void;
}

/** Bytes before each message: a flag for compression and the length. */
const PREFIX = 5;

/** Splits the bytes of an HTTP/2 stream into requests. */
export class RequestReader {
  readonly #options: RequestReaderOptions;
  /** The beginning of a message, and the number of bytes needed to continue. */
  readonly #begun = new ByteBuffer();
  #wanted = PREFIX;
  #broken = false;

  constructor(options: RequestReaderOptions) {
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
