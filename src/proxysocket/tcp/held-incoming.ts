import type { OnReadOpts, Socket } from 'node:net';
import type { Direction } from './direction.ts';
import type { HandleAddress, TcpHandle } from './handle.ts';
import { HandleSocket } from './handle-socket.ts';
import type { HeldIncoming, Incoming } from './incoming.ts';
import type { RelaySocket } from './relay-socket.ts';
import { resetSocket } from './reset.ts';
import type { StreamCalls } from './stream-calls.ts';

/**
 * What is read of a held client; the rest waits in the kernel. Node tells that a client has left only while
 * the client is being read, so as long as it has not sent so much.
 */
const HELD_BYTES = 16 * 1024;

const NOTHING = Buffer.alloc(0);

/** Holds a connection that Node has not made a socket for. */
export class HeldHandle implements HeldIncoming {
  readonly calls: StreamCalls;
  readonly #inner: Incoming;
  readonly #socket: HandleSocket;
  readonly #onread: OnReadOpts;
  #early = Buffer.allocUnsafeSlow(HELD_BYTES);
  #length = 0;
  /** The client's FIN came behind something. */
  #ended = false;
  #started = false;
  #gone: (() => void) | undefined;

  /** `onread` is that of the direction that will read on. `hold` has to follow. */
  constructor(inner: Incoming, handle: TcpHandle, calls: StreamCalls, onread: OnReadOpts) {
    this.#inner = inner;
    this.calls = calls;
    this.#onread = onread;
    this.#socket = new HandleSocket(calls, handle, {
      buffer: () => this.#nextBuffer(),
      callback: (length, buffer) =>
        this.#started ? onread.callback(length, buffer) : this.#took(length),
    });
    this.#socket.on('error', () => undefined);
    this.#socket.on('close', () => this.#lost());
    this.#socket.on('end', () => {
      if (this.#length > 0) this.#ended = true;
      else this.#lost();
    });
  }

  remote(): HandleAddress {
    return this.#inner.remote();
  }

  local(): HandleAddress {
    return this.#inner.local();
  }

  reset(): void {
    this.#gone = undefined;
    resetSocket(this.#socket);
  }

  hold(_onread: OnReadOpts, gone: () => void): HeldIncoming {
    this.#gone = gone;
    if (this.#length < HELD_BYTES) this.#socket.read();
    return this;
  }

  release(): void {
    this.#gone = undefined;
    this.#socket.pause();
  }

  socket(): RelaySocket {
    return this.#socket;
  }

  start(direction: Direction): void {
    this.#started = true;
    const early = this.#early.subarray(0, this.#length);
    // This object lives as long as the relay.
    this.#early = NOTHING;
    if (this.#length === 0) direction.start();
    else direction.startWith(early);
    if (this.#ended) this.#socket.emit('end');
  }

  /** Returns whether to read on. */
  #took(length: number): boolean {
    this.#length += length;
    return this.#length < HELD_BYTES;
  }

  /** Each read goes behind the one before it. */
  #nextBuffer(): Uint8Array {
    if (!this.#started && this.#length < HELD_BYTES) return this.#early.subarray(this.#length);
    const { buffer } = this.#onread;
    return typeof buffer === 'function' ? buffer() : buffer;
  }

  #lost(): void {
    const gone = this.#gone;
    this.#gone = undefined;
    gone?.();
  }
}

/** Holds a paused `net.Socket`, which reads ahead as much as it has room for. */
export class HeldSocket implements HeldIncoming {
  readonly calls = undefined;
  readonly #inner: Incoming;
  readonly #socket: Socket;
  #gone: (() => void) | undefined;

  /** `hold` has to follow. */
  constructor(inner: Incoming, socket: Socket) {
    this.#inner = inner;
    this.#socket = socket;
    socket.on('close', () => this.#lost());
    // Not while there is something before it that nobody has taken.
    socket.on('end', () => this.#lost());
  }

  remote(): HandleAddress {
    return this.#inner.remote();
  }

  local(): HandleAddress {
    return this.#inner.local();
  }

  reset(): void {
    this.#gone = undefined;
    this.#inner.reset();
  }

  hold(_onread: OnReadOpts, gone: () => void): HeldIncoming {
    this.#gone = gone;
    this.#socket.read(0);
    return this;
  }

  release(): void {
    this.#gone = undefined;
  }

  socket(): RelaySocket {
    return this.#socket;
  }

  start(direction: Direction): void {
    direction.startFlowing();
    // It came while an endpoint was being connected, when nobody listened.
    if (this.#socket.readableEnded) this.#socket.emit('end');
  }

  #lost(): void {
    const gone = this.#gone;
    this.#gone = undefined;
    gone?.();
  }
}
