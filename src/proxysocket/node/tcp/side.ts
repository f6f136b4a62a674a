import type { OnReadOpts, Socket } from 'node:net';
import type { Deadline } from '../../core/timers.ts';
import type { ByteCounters } from '../../tcp/transport.ts';
import type { CopyMemory, Yielding } from './buffers.ts';

const BULK_READ = 32 * 1024;
/** This many consecutive reads below this many bytes make it a small flow again. */
const SMALL_READS = 16;
const SMALL_READ = 16 * 1024;

/**
 * One socket of a relay, and the direction from it to the other one. Small flows read into a shared buffer and copy
 * each chunk; a bulk flow writes from a private one. When the kernel does not take all of a chunk, nothing more is read
 * until it has: that is the back-pressure, and why a private buffer is not overwritten too early.
 */
export abstract class Side implements Yielding {
  abstract readonly socket: Socket;
  readonly onread: OnReadOpts;
  readonly memory: CopyMemory;
  readonly #isClient: boolean;
  #peer: Side | undefined;
  #counters: ByteCounters | undefined;
  #bulk: Buffer | undefined;
  #isSmall = false;
  #smallReads = 0;
  #stalled: Deadline<{ probe(): void }> | undefined;
  /** Size of the last chunk that the peer has not taken whole at once. */
  #pending = 0;
  #yields = false;
  bytes = 0;

  /** The subclass makes the socket, and calls `watch`. */
  constructor(memory: CopyMemory, isClient: boolean) {
    this.memory = memory;
    this.#isClient = isClient;
    this.onread = {
      // A function, so that the buffer can change from one read to the next.
      buffer: () => this.#bulk ?? (this.#peer === undefined ? this.earlyBuffer : memory.shared),
      callback: (length, buffer) => this.#read(length, buffer as Buffer),
    };
  }

  /** Whether any data was written that the peer may have sent. */
  get isTouched(): boolean {
    return this.bytes + this.#pending > 0;
  }

  pipe(peer: Side, counters: ByteCounters): void {
    this.#peer = peer;
    this.#counters = counters;
  }

  /** Stops reading until `resume`; the rest waits in the kernel. */
  pause(): void {
    this.#yields = false;
    this.socket.pause();
  }

  resume(): void {
    this.#yields = false;
    this.socket.resume();
  }

  /** New clients have been accepted: continues reading, unless paused or resumed in between. */
  endYield(): void {
    if (this.#yields) this.resume();
  }

  /**
   * The FIN of this side was read: passes it on. `isLast` says that the peer has sent its own FIN before; then closing
   * its socket sends ours, and saves the shutdown.
   */
  end(isLast: boolean): void {
    const sink = this.#peer?.socket;
    if (sink === undefined || sink.destroyed) return;
    // A FIN is read after what comes before it was written, except from a socket that emits 'data':
    // that one reads ahead a little.
    if (sink.writableLength === 0) this.#giveBulk();
    if (isLast && sink.writableLength === 0) sink.destroy();
    else sink.end();
  }

  /** Reads small chunks from now on: Node does not report which part of a large one a slow peer has taken. */
  keepSmall(): void {
    this.#isSmall = true;
  }

  /**
   * Checks whether this side is still there. While it waits for its peer, Node does not watch its socket, so a reset or
   * a host that went silent would not be noticed for as long as the peer takes nothing. Writing nothing to it makes the
   * kernel report it.
   */
  probe(): void {
    const { socket } = this;
    if (this.#stalled === undefined || socket.destroyed) return;
    if (socket.writable && socket.writableLength === 0) socket.write(EMPTY);
    this.#stalled = this.memory.stalled.add(this);
  }

  free(): void {
    this.#endStall();
    this.#giveBulk();
    this.#peer = undefined;
  }

  protected get earlyBuffer(): Buffer {
    return this.memory.first;
  }

  /** Keeps what was read before there is a peer, or what a lost one has not sent. Returns whether to continue reading. */
  protected abstract keep(chunk: Buffer): boolean;
  protected abstract onError(error: Error): void;
  /** The FIN of this side, or a reset that looks like it, was read. */
  protected abstract onEnd(): void;
  protected abstract onClose(): void;

  protected watch(): void {
    this.socket
      .on('error', (error) => this.onError(error))
      .on('end', () => this.onEnd())
      .on('close', () => this.onClose());
  }

  protected pass(chunk: Buffer): void {
    const continues = this.#peer === undefined ? this.keep(chunk) : this.write(chunk);
    if (!continues) this.socket.pause();
  }

  /** The chunk must not change until the peer has taken it. Returns whether to continue reading. */
  protected write(chunk: Buffer): boolean {
    const sink = this.#peer?.socket;
    if (sink === undefined) return false;
    sink.write(chunk);
    if (sink.errored !== null || sink.destroyed) {
      // None of it has been sent yet, so another endpoint can have it.
      if (!this.isTouched) this.keep(chunk);
      return false;
    }
    if (sink.writableLength === 0) {
      this.#count(chunk.length);
      this.#yields = this.memory.priority.yields(this);
      return !this.#yields;
    }
    this.#pending = chunk.length;
    this.#stalled = this.memory.stalled.add(this);
    // Called back when everything before it is in the kernel; 'drain' would not come here, because it follows
    // only writes above the high-water mark.
    sink.write(EMPTY, this.#taken);
    return false;
  }

  /** Returns whether to continue reading. */
  #read(length: number, buffer: Buffer): boolean {
    if (this.#peer === undefined) return this.keep(buffer.subarray(0, length));
    const { scratch, bulk } = this.memory;
    if (buffer !== this.#bulk) {
      const isTaken = this.write(scratch.copy(buffer, length));
      if (length >= BULK_READ && !this.#isSmall) this.#bulk = bulk.acquire();
      if (this.#stalled !== undefined) scratch.keep();
      return isTaken;
    }
    const isTaken = this.write(length === buffer.length ? buffer : buffer.subarray(0, length));
    if (length >= SMALL_READ) this.#smallReads = 0;
    else this.#smallReads += 1;
    const isDone = this.#isSmall || this.#smallReads >= SMALL_READS;
    if (isDone && this.#stalled === undefined) this.#giveBulk();
    return isTaken;
  }

  readonly #taken = (error?: Error | null): void => {
    this.#endStall();
    // A failed write ends the relay through the peer's 'error'.
    if (error instanceof Error) return;
    this.#count(this.#pending);
    this.resume();
  };

  #count(length: number): void {
    this.bytes += length;
    if (this.#counters === undefined) return;
    if (this.#isClient) this.#counters.bytesIn += length;
    else this.#counters.bytesOut += length;
  }

  #endStall(): void {
    this.#stalled?.remove();
    this.#stalled = undefined;
  }

  #giveBulk(): void {
    if (this.#bulk === undefined) return;
    this.memory.bulk.release(this.#bulk);
    this.#bulk = undefined;
    this.#smallReads = 0;
  }
}

export const EMPTY = Buffer.alloc(0);

/**
 * Before libuv 1.52 (Node 22 has 1.51), a reset that arrives behind data that was not read yet is
 * reported as the end of the stream. Taken for a FIN, it would make a broken transfer look complete.
 */
export const RESET_MAY_LOOK_LIKE_FIN = Number.parseFloat(process.versions.uv ?? '') < 1.52;

/**
 * Calls back when the end of a socket's stream is known to be a FIN. In doubt, it writes nothing to the socket: the
 * kernel then reports a reset as 'error'. A socket that cannot be written to, or has more to write, is trusted.
 */
export function whenFin(
  socket: Socket,
  callback: () => void,
  doubtful = RESET_MAY_LOOK_LIKE_FIN,
): void {
  if (!doubtful || !socket.writable || socket.writableLength > 0) {
    callback();
    return;
  }
  socket.write(EMPTY, (error) => {
    if (!(error instanceof Error)) callback();
  });
}

/**
 * Ends a socket with a reset (RST). Between `end()` and 'finish' libuv refuses the reset with EINVAL, and Node forgets
 * the handle without closing it, so it waits for 'finish'. On a connecting socket it would wait for the connection.
 */
export function resetSocket(socket: Socket): void {
  if (socket.destroyed) return;
  if (socket.connecting) {
    socket.destroy();
  } else if (socket.writableEnded && !socket.writableFinished && socket.writableLength === 0) {
    socket.once('finish', () => resetSocket(socket));
  } else {
    socket.resetAndDestroy();
  }
}
