import type { OnReadOpts } from 'node:net';
import type { BulkBuffers } from './bulk-buffers.ts';
import type { Deadline, DeadlineQueue } from '../core/deadlines.ts';
import type { RelaySocket } from './relay-socket.ts';
import type { RightOfWay, Waiting } from './right-of-way.ts';
import type { Scratch } from './scratch.ts';

/** A read of at least this many bytes makes a flow a bulk flow. */
const BULK_READ = 32 * 1024;
/** This many reads in a row below this many bytes make it a small one again. */
const SMALL_READS = 16;
const SMALL_READ = 16 * 1024;

const EMPTY = Buffer.alloc(0);

/** What the directions of all relays share. */
export interface CopyMemory {
  /** Every small flow reads into this one. */
  readonly shared: Buffer;
  readonly scratch: Scratch;
  readonly bulk: BulkBuffers;
  /** Directions whose sink takes nothing. */
  readonly stalled: DeadlineQueue<Direction>;
  /** Tells which ones have to wait for new clients. */
  readonly way: RightOfWay;
}

/**
 * One direction of a relay: reads from a source socket and writes to a sink socket.
 *
 * A small flow reads into the buffer that all share, and each chunk is copied before it is written,
 * since the next read of any socket overwrites it. A bulk flow reads into a private buffer and
 * writes from it without copying. Either way, when the kernel does not take all of a chunk at once,
 * nothing more is read until it has: that is the whole back-pressure, and the reason why a private
 * buffer is never overwritten too early. So a direction holds one chunk at most.
 */
export class Direction implements Waiting {
  readonly onread: OnReadOpts;
  readonly #memory: CopyMemory;
  readonly #count: (bytes: number) => void;
  #source: RelaySocket | undefined;
  #sink: RelaySocket | undefined;
  #bulk: Buffer | undefined;
  #smallReads = 0;
  /** Running while the sink takes nothing. */
  #stalled: Deadline<Direction> | undefined;
  /** Waits for new clients to be accepted. */
  #yields = false;
  /** The source was not made with `onread` and emits 'data'. */
  #flowing = false;
  #bytes = 0;

  /** `count` is told the size of every chunk. */
  constructor(memory: CopyMemory, count: (bytes: number) => void) {
    this.#memory = memory;
    this.#count = count;
    this.onread = {
      // A function, so that the buffer can change from one read to the next.
      buffer: () => this.#bulk ?? memory.shared,
      callback: (length, buffer) => this.#read(length, buffer as Buffer),
    };
  }

  /** Bytes read so far. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Joins the two sockets. The source does not read yet, or has only just begun to. */
  join(source: RelaySocket, sink: RelaySocket): void {
    this.#source = source;
    this.#sink = sink;
  }

  /** Starts reading from a source that was made with this direction's `onread`. */
  start(): void {
    this.#source?.read(0);
  }

  /** The same, when a first chunk was read before. */
  startWith(chunk: Buffer): void {
    this.#pass(chunk);
    if (this.#stalled === undefined && !this.#yields) this.start();
  }

  /** Starts reading from a source that emits 'data', where `onread` is not to be had. */
  startFlowing(): void {
    this.#flowing = true;
    this.#source?.on('data', (chunk: Buffer) => this.#pass(chunk));
    this.#source?.resume();
  }

  /** Reads no more until `resume`; what nobody has read yet waits in the kernel. */
  hold(): void {
    this.#yields = false;
    this.#source?.pause();
  }

  /** New clients are in: reads on, unless something else has come between. */
  goOn(): void {
    if (this.#yields) this.resume();
  }

  /** Reads on. */
  resume(): void {
    this.#yields = false;
    const source = this.#source;
    if (source === undefined || source.destroyed) return;
    if (this.#flowing) source.resume();
    else source.read(0);
  }

  /**
   * The source has sent its FIN: passes it on. `last` says that the sink has sent its own FIN before;
   * then closing the sink sends ours, and saves the shutdown.
   */
  end(last: boolean): void {
    const sink = this.#sink;
    if (sink === undefined || sink.destroyed) return;
    // A FIN is read after what comes before it was written, except from a source that emits 'data':
    // that one reads ahead a little.
    if (sink.writableLength === 0) this.#giveBulk();
    if (last && sink.writableLength === 0) sink.destroy();
    else sink.end();
  }

  /**
   * Looks whether the source is still there. While a direction waits for its sink, Node does not
   * watch the source, so a reset or a host that went silent would not be noticed for as long as the
   * sink takes nothing. Writing nothing to the source makes the kernel tell.
   */
  probe(): void {
    const source = this.#source;
    if (this.#stalled === undefined || source === undefined || source.destroyed) return;
    if (source.writable && source.writableLength === 0) source.write(EMPTY);
    this.#stalled = this.#memory.stalled.add(this);
  }

  /** Both sockets are closed. */
  release(): void {
    this.#endStall();
    this.#giveBulk();
    this.#source = undefined;
    this.#sink = undefined;
  }

  /** Returns whether to read on. */
  #read(length: number, buffer: Buffer): boolean {
    const sink = this.#sink;
    if (sink === undefined) return false;
    const { shared, scratch, bulk } = this.#memory;
    this.#bytes += length;
    this.#count(length);
    if (buffer === shared) {
      sink.write(scratch.copy(buffer, length));
      if (length >= BULK_READ) this.#bulk = bulk.take();
      if (sink.writableLength === 0) return !this.#givesWay();
      scratch.keep(length);
    } else {
      sink.write(length === buffer.length ? buffer : buffer.subarray(0, length));
      const taken = sink.writableLength === 0;
      if (length >= SMALL_READ) this.#smallReads = 0;
      else {
        this.#smallReads += 1;
        if (this.#smallReads >= SMALL_READS && taken) this.#giveBulk();
      }
      if (taken) return !this.#givesWay();
    }
    this.#stall(sink);
    return false;
  }

  #pass(chunk: Buffer): void {
    const sink = this.#sink;
    if (sink === undefined) return;
    this.#bytes += chunk.length;
    this.#count(chunk.length);
    sink.write(chunk);
    const taken = sink.writableLength === 0;
    if (taken && !this.#givesWay()) return;
    this.#source?.pause();
    if (!taken) this.#stall(sink);
  }

  #givesWay(): boolean {
    this.#yields = this.#memory.way.yields(this);
    return this.#yields;
  }

  #stall(sink: RelaySocket): void {
    this.#stalled = this.#memory.stalled.add(this);
    // Called back when everything before it is with the kernel; 'drain' would be silent here,
    // because it follows only writes above the high-water mark.
    sink.write(EMPTY, this.#taken);
  }

  readonly #taken = (error?: Error | null): void => {
    this.#endStall();
    // A failed write ends the relay through the sink's 'error'.
    if (!(error instanceof Error)) this.resume();
  };

  #endStall(): void {
    this.#stalled?.remove();
    this.#stalled = undefined;
  }

  #giveBulk(): void {
    if (this.#bulk === undefined) return;
    this.#memory.bulk.give(this.#bulk);
    this.#bulk = undefined;
    this.#smallReads = 0;
  }
}
