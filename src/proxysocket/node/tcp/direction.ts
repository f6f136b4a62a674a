import type { OnReadOpts, Socket } from 'node:net';
import type { Deadline, DeadlineQueue } from '../../core/timers.ts';
import type { ByteCounters, HeadOwner } from '../../tcp/transport.ts';
import type { AcceptPriority, Yielding } from './accept-priority.ts';
import type { BulkBuffers, Scratch } from './buffers.ts';

/** A read of at least this many bytes makes a flow a bulk flow. */
const BULK_READ = 32 * 1024;
/** This many consecutive reads below this many bytes make it a small flow again. */
const SMALL_READS = 16;
const SMALL_READ = 16 * 1024;

/**
 * Bytes read of a held client; the rest stays in the kernel. Node reports a client's disconnect only while it
 * reads, so as long as it has not sent that much.
 */
export const HELD_BYTES = 16 * 1024;

const EMPTY = Buffer.alloc(0);

type HeadReader = Pick<HeadOwner, 'head' | 'headTaken'>;

/** What the directions of all relays share. */
export interface CopyMemory {
  /** Every small flow reads into this one. */
  readonly shared: Buffer;
  /** The first part of it, for the first read of each socket. */
  readonly first: Buffer;
  readonly scratch: Scratch;
  readonly bulk: BulkBuffers;
  /** Directions whose sink accepts no data. */
  readonly stalled: DeadlineQueue<Direction>;
  readonly priority: AcceptPriority;
}

/**
 * One direction of a relay: reads from a source socket and writes to a sink socket.
 *
 * Small flows read into a shared buffer and copy each chunk before it is written. A bulk flow reads into a private
 * buffer and writes from it. When the kernel does not take all of a chunk, nothing more is read until it has: that is
 * the back-pressure, and why a private buffer is not overwritten too early.
 */
export class Direction implements Yielding {
  readonly onread: OnReadOpts;
  readonly #memory: CopyMemory;
  #source: Socket | undefined;
  #sink: Socket | undefined;
  #counters: ByteCounters | undefined;
  #isInward = false;
  /** Read before there was an endpoint, or refused by one that was lost. */
  #held: Buffer | undefined;
  /** Looks for a head in all held bytes. */
  #head: HeadReader | undefined;
  #bulk: Buffer | undefined;
  #isSmall = false;
  #smallReads = 0;
  /** Running while the sink accepts no data. */
  #stalled: Deadline<Direction> | undefined;
  /** Size of the last chunk that the sink has not taken whole at once. */
  #pending = 0;
  /** Waits for new clients to be accepted. */
  #yields = false;
  #bytes = 0;

  constructor(memory: CopyMemory) {
    this.#memory = memory;
    this.onread = {
      // A function, so that the buffer can change from one read to the next.
      buffer: () => this.#bulk ?? (this.#sink === undefined ? this.#holdBuffer() : memory.shared),
      callback: (length, buffer) => this.#read(length, buffer as Buffer),
    };
  }

  /** Bytes that the sink has taken. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Whether any data was written that the sink may have sent. */
  get isTouched(): boolean {
    return this.#bytes + this.#pending > 0;
  }

  /** Bytes of a held client. */
  get heldBytes(): number {
    return this.#held?.length ?? 0;
  }

  from(source: Socket): void {
    this.#source = source;
  }

  to(sink: Socket, counters: ByteCounters, key: keyof ByteCounters): void {
    this.#sink = sink;
    this.#counters = counters;
    this.#isInward = key === 'bytesIn';
  }

  /** Reads what the client sends while it is held, up to a bound. */
  hold(): void {
    if (this.heldBytes < HELD_BYTES) this.#source?.resume();
  }

  /** Reads until the head is complete, drops it and stops reading. */
  readHead(reader: HeadReader): void {
    this.#head = reader;
    this.#source?.resume();
  }

  /** Writes the data read before, and reads on. */
  start(): void {
    const held = this.#held;
    this.#held = undefined;
    if (held === undefined || this.#write(held)) this.resume();
  }

  /** Stops reading until `start` or `resume`; the rest waits in the kernel. */
  pause(): void {
    this.#yields = false;
    this.#source?.pause();
  }

  /** New clients have been accepted: continues reading, unless paused or resumed in between. */
  endYield(): void {
    if (this.#yields) this.resume();
  }

  resume(): void {
    this.#yields = false;
    this.#source?.resume();
  }

  /**
   * The source has sent its FIN: passes it on. `isLast` says that the sink has sent its own FIN before; then closing
   * the sink sends ours, and saves the shutdown.
   */
  end(isLast: boolean): void {
    const sink = this.#sink;
    if (sink === undefined || sink.destroyed) return;
    // A FIN is read after what comes before it was written, except from a source that emits 'data':
    // that one reads ahead a little.
    if (sink.writableLength === 0) this.#giveBulk();
    if (isLast && sink.writableLength === 0) sink.destroy();
    else sink.end();
  }

  /** Reads small chunks from now on: Node does not report which part of a large one a slow sink has taken. */
  keepSmall(): void {
    this.#isSmall = true;
  }

  /**
   * Checks whether the source is still there. While a direction waits for its sink, Node does not watch the source, so
   * a reset or a host that went silent would not be noticed for as long as the sink takes nothing. Writing nothing to
   * the source makes the kernel report it.
   */
  probe(): void {
    const source = this.#source;
    if (this.#stalled === undefined || source === undefined || source.destroyed) return;
    if (source.writable && source.writableLength === 0) source.write(EMPTY);
    this.#stalled = this.#memory.stalled.add(this);
  }

  /** Nothing more is read or written. */
  release(): void {
    this.#endStall();
    this.#giveBulk();
    this.#source = undefined;
    this.#sink = undefined;
  }

  /** Returns whether to continue reading. */
  #read(length: number, buffer: Buffer): boolean {
    if (this.#sink === undefined) return this.#hold(buffer.subarray(0, length));
    const { scratch, bulk } = this.#memory;
    if (buffer !== this.#bulk) {
      const isTaken = this.#write(scratch.copy(buffer, length));
      if (length >= BULK_READ && !this.#isSmall) this.#bulk = bulk.acquire();
      if (this.#stalled !== undefined) scratch.keep();
      return isTaken;
    }
    const isTaken = this.#write(length === buffer.length ? buffer : buffer.subarray(0, length));
    if (length >= SMALL_READ) this.#smallReads = 0;
    else this.#smallReads += 1;
    const isDone = this.#isSmall || this.#smallReads >= SMALL_READS;
    if (isDone && this.#stalled === undefined) this.#giveBulk();
    return isTaken;
  }

  /** The same from a source that was made without `onread`. */
  pass(chunk: Buffer): void {
    const continues = this.#sink === undefined ? this.#hold(chunk) : this.#write(chunk);
    if (!continues) this.#source?.pause();
  }

  /** The chunk must not change until the sink has taken it. Returns whether to continue reading. */
  #write(chunk: Buffer): boolean {
    const sink = this.#sink;
    if (sink === undefined) return false;
    sink.write(chunk);
    if (sink.errored !== null || sink.destroyed) {
      // None of it has been sent yet, so another endpoint can have it.
      if (!this.isTouched) this.#held = Buffer.from(chunk);
      return false;
    }
    if (sink.writableLength === 0) {
      this.#count(chunk.length);
      this.#yields = this.#memory.priority.yields(this);
      return !this.#yields;
    }
    this.#pending = chunk.length;
    this.#stalled = this.#memory.stalled.add(this);
    // Called back when everything before it is in the kernel; 'drain' would not come here, because it follows
    // only writes above the high-water mark.
    sink.write(EMPTY, this.#taken);
    return false;
  }

  readonly #taken = (error?: Error | null): void => {
    this.#endStall();
    // A failed write ends the relay through the sink's 'error'.
    if (error instanceof Error) return;
    this.#count(this.#pending);
    this.resume();
  };

  #count(length: number): void {
    this.#bytes += length;
    if (this.#counters === undefined) return;
    if (this.#isInward) this.#counters.bytesIn += length;
    else this.#counters.bytesOut += length;
  }

  #holdBuffer(): Buffer {
    const { shared, first } = this.#memory;
    return this.#held === undefined
      ? first
      : shared.subarray(0, Math.max(1, HELD_BYTES - this.#held.length));
  }

  #hold(chunk: Buffer): boolean {
    let held = this.#held === undefined ? Buffer.from(chunk) : Buffer.concat([this.#held, chunk]);
    const reader = this.#head;
    const length = reader?.head(held);
    if (reader !== undefined && length !== undefined) {
      this.#head = undefined;
      held = held.subarray(length);
      // It may want to continue reading, which is impossible while a read is being handled.
      process.nextTick(() => reader.headTaken());
    }
    this.#held = held.length === 0 ? undefined : held;
    return length === undefined && held.length < HELD_BYTES;
  }

  #endStall(): void {
    this.#stalled?.remove();
    this.#stalled = undefined;
  }

  #giveBulk(): void {
    if (this.#bulk === undefined) return;
    this.#memory.bulk.release(this.#bulk);
    this.#bulk = undefined;
    this.#smallReads = 0;
  }
}
