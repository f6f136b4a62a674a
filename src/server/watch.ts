import { Metadata, status, type ServerDuplexStream } from '@grpc/grpc-js';
import type { ServerHttp2Stream } from 'node:http2';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { countFrames, RESET_FRAME } from '../api/frames.ts';
import { WatchReq } from '../api/generated/localv1/api.ts';
import { SHAPES } from '../api/generated/shapes.ts';
import { checked } from '../api/wire.ts';
import { KpngError, messageOf } from '../errors.ts';
import { ByteBuffer } from '../util/byte-buffer.ts';
import type { Reader, Readers } from '../store/reader.ts';
import { operationsSent, watchEnded, watchStarted, type ApiName } from './events.ts';
import { MAX_REQUESTS_AHEAD } from './limits.ts';

/** A call whose messages are bytes. */
export type BytesCall = ServerDuplexStream<Buffer, Uint8Array>;

export interface WatchOptions {
  readonly api: ApiName;
  readonly call: BytesCall;
  readonly readers: Pick<Readers, 'open'>;
  readonly hub: Hub;
  /** Bytes. */
  readonly maxMessageSize: number;
}

/**
 * One Watch call: each request is answered with one change set, as soon as there is one.
 *
 * Changes are not queued for a slow client: the next change set is made from the state at that time.
 */
export class Watch {
  readonly #options: WatchOptions;
  readonly #peer: string;
  /**
   * Read and written directly: grpc-js passes each message of each call through queues, promises and copies, which for
   * a thousand clients doubles the cost of a change.
   */
  readonly #stream: ServerHttp2Stream;
  readonly #reader: Reader;
  readonly #requests: WatchReq[] = [];
  #started = false;
  /** The change set being sent, while the client still has to read part of it. */
  #sending: Iterator<Buffer> | undefined;
  #halfClosed = false;
  #ended = false;
  #syncs = 0;
  #lastRequest: Buffer | undefined;
  #requested: WatchReq = { nodeName: '', clusterScope: undefined };

  constructor(options: WatchOptions) {
    const { api, call, readers, hub } = options;
    this.#options = options;
    this.#peer = call.getPeer();
    // A field of the call objects of grpc-js 1.14, which does not offer it.
    this.#stream = (call as unknown as { call: { stream: ServerHttp2Stream } }).call.stream;
    this.#reader = readers.open((error) => this.end(status.ABORTED, error));
    // The stream must have its headers before bytes are written to it.
    call.sendMetadata(new Metadata());
    const requests = new RequestReader(options.maxMessageSize);
    this.#stream.removeAllListeners('data');
    this.#stream.on('data', (chunk: Buffer) => {
      if (this.#ended) return;
      try {
        for (const request of requests.read(chunk)) this.#onRequest(request);
      } catch (refusal) {
        if (!(refusal instanceof Refusal)) throw refusal;
        this.end(refusal.status, refusal);
      }
    });
    this.#stream.once('end', () => this.#onHalfClose());
    // grpc-js listens only to the first error, and itself reports the end of the call.
    this.#stream.on('error', () => {});
    this.#stream.resume();
    call.on('cancelled', () => this.#finish(undefined));
    call.on('error', () => this.#finish(undefined));
    hub.watches.add(this);
    watchStarted.publish({ api, peer: this.#peer, watchers: hub.watches.size });
  }

  /** Answers the waiting request if there is something to send. */
  poll(): void {
    const [request] = this.#requests;
    if (request === undefined || this.#sending !== undefined || this.#ended) return;
    const changes = this.#reader.next(request.nodeName, request.clusterScope);
    if (changes === undefined) return;
    this.#sending = Buffer.isBuffer(changes) ? [changes].values() : piecesOf(changes);
    this.#send();
  }

  /** Writes whole frames, which must not be changed before `onTaken`: they are sent then, or never will be. */
  #write(frames: Buffer, onTaken?: () => void): void {
    this.#options.hub.sent(countFrames(frames));
    if (this.#stream.writable) this.#stream.write(frames, onTaken);
    else if (onTaken !== undefined) setImmediate(onTaken);
  }

  /** Ends the call with a status other than OK. */
  end(code: status, error: KpngError): void {
    if (this.#ended) return;
    this.#finish(error);
    this.#options.call.emit('error', Object.assign(new Error(error.message), { code }));
  }

  /** Throws a Refusal. */
  #onRequest(request: Buffer): void {
    if (this.#ended) return;
    // Requests of the global API have no content, and those of the local one are usually the same as before.
    if (this.#options.api === 'local' && this.#lastRequest?.equals(request) !== true) {
      try {
        this.#requested = WatchReq.decode(checked(request, SHAPES['localv1.WatchReq']));
      } catch (cause) {
        const problem = `A request cannot be decoded: ${messageOf(cause)}.`;
        throw new Refusal(status.INVALID_ARGUMENT, problem, cause);
      }
      // A copy: the message is part of a larger buffer.
      this.#lastRequest = Buffer.from(request);
    }
    this.#requests.push(this.#requested);
    if (!this.#started) {
      this.#started = true;
      this.#write(RESET_FRAME);
    }
    if (this.#requests.length >= MAX_REQUESTS_AHEAD) this.#stream.pause();
    this.poll();
  }

  /** The client sends no more requests; earlier ones are still answered. */
  #onHalfClose(): void {
    this.#halfClosed = true;
    if (this.#requests.length === 0) this.#close();
  }

  /**
   * Sends the next piece, and the one after it when the client has taken that. The next request is answered after the
   * last piece: a client that sends requests without reading must not fill the memory.
   */
  #send(): void {
    if (this.#sending === undefined || this.#ended) return;
    const { done, value } = this.#sending.next();
    if (done !== true) {
      this.#write(value, () => this.#send());
      return;
    }
    this.#sending = undefined;
    this.#syncs++;
    this.#requests.shift();
    if (this.#requests.length > 0) this.poll();
    else if (this.#halfClosed) this.#close();
    else if (this.#stream.isPaused()) this.#stream.resume();
  }

  #close(): void {
    this.#finish(undefined);
    this.#options.call.end();
  }

  /** `error`: why the server ended it; undefined: the client ended it or disconnected. */
  #finish(error: KpngError | undefined): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#sending = undefined;
    this.#reader.close();
    const { api, hub } = this.#options;
    hub.watches.delete(this);
    watchEnded.publish({
      api,
      peer: this.#peer,
      nodeName: this.#requested.nodeName,
      syncs: this.#syncs,
      watchers: hub.watches.size,
      error,
    });
  }
}

/** Yields to other work after this long. Milliseconds. */
const SLICE_MS = 10;

/** All Watch calls; polls them when there may be something new. */
export class Hub {
  readonly watches = new Set<Watch>();
  #isPolling = false;
  #isChanged = false;
  /** Operations sent but not published yet. */
  #sent = 0;

  /** A watch has sent this many operations. They are published together, at the end of the turn. */
  sent(operations: number): void {
    if (!operationsSent.hasSubscribers) return;
    if (this.#sent === 0) setImmediate(() => this.#publish());
    this.#sent += operations;
  }

  #publish(): void {
    operationsSent.publish({ operations: this.#sent });
    this.#sent = 0;
  }

  /** Polls all watches soon; repeated calls until then have no further effect. */
  changed(): void {
    this.#isChanged = true;
    if (!this.#isPolling) void this.#poll();
  }

  async #poll(): Promise<void> {
    this.#isPolling = true;
    while (this.#isChanged) {
      await nextTurn();
      this.#isChanged = false;
      let end = performance.now() + SLICE_MS;
      for (const watch of this.watches) {
        watch.poll();
        if (performance.now() < end) continue;
        await nextTurn();
        end = performance.now() + SLICE_MS;
      }
    }
    this.#isPolling = false;
  }
}

/** Frames are joined to pieces of at most this size; a larger one is a piece of its own. Bytes. */
const PIECE = 64 * 1024;

/**
 * Frames in pieces of a useful size. Each piece is valid until the next one is
 * requested: they share the same memory, since a state for a thousand clients would otherwise leave gigabytes to the
 * garbage collector.
 */
export function* piecesOf(frames: Iterable<Buffer>): Generator<Buffer, void, undefined> {
  const piece = Buffer.allocUnsafeSlow(PIECE);
  let length = 0;
  for (const frame of frames) {
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

/** A request is not accepted: the call has to end with this status. */
export class Refusal extends KpngError {
  readonly status: status;

  constructor(code: status, message: string, cause?: unknown) {
    super('KPNG_OP_INVALID', message, { cause });
    this.status = code;
  }
}

/** Bytes before each message: a flag for compression and the length. */
const PREFIX = 5;

/** Splits the bytes of an HTTP/2 stream into requests. */
export class RequestReader {
  readonly #maxBytes: number;
  /** The beginning of a message, and the number of bytes needed to continue. */
  readonly #begun = new ByteBuffer();
  #wanted = PREFIX;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** The requests that a chunk completes. Throws a Refusal behind the last valid one; then nothing more may be read. */
  *read(chunk: Buffer): Generator<Buffer, void, undefined> {
    let rest = chunk;
    if (this.#begun.length > 0) {
      this.#begun.append(chunk);
      if (this.#begun.length < this.#wanted) return;
      rest = this.#begun.take();
    }
    for (;;) {
      this.#wanted = PREFIX + (rest.length < PREFIX ? 0 : this.#lengthOf(rest));
      if (rest.length < this.#wanted) break;
      yield rest.subarray(PREFIX, this.#wanted);
      rest = rest.subarray(this.#wanted);
    }
    this.#begun.append(rest);
  }

  #lengthOf(message: Buffer): number {
    if (message[0] !== 0) {
      throw new Refusal(
        status.UNIMPLEMENTED,
        'Invalid request: compressed requests are not supported.',
      );
    }
    const length = message.readUInt32BE(1);
    if (length <= this.#maxBytes) return length;
    const problem = `Invalid request: a request of ${length} bytes exceeds the limit of ${this.#maxBytes}.`;
    throw new Refusal(status.RESOURCE_EXHAUSTED, problem);
  }
}
