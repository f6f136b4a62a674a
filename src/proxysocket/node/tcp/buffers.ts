import type { Clock } from '../../../util/clock.ts';
import { LimitSignal } from '../../core/limit-signal.ts';
import { DeadlineQueue } from '../../core/timers.ts';
import type { EngineLimits } from '../../limits.ts';

const BULK_BYTES = 1024 * 1024;

/** Free buffers kept for reuse. More are left to the garbage collector. */
const MAX_FREE = 16;

/**
 * Private read buffers for bulk flows, within a budget: a flow costs a third of the CPU of `pipe()`. Without one, the
 * shared buffer is slower.
 */
class BulkBuffers {
  readonly #budget: number;
  readonly #signal: LimitSignal;
  readonly #free: Buffer[] = [];
  used = 0;

  constructor(budget: number) {
    this.#budget = budget;
    this.#signal = new LimitSignal('bulk-buffer-budget', () => budget);
  }

  acquire(): Buffer | undefined {
    if (this.used + BULK_BYTES > this.#budget) {
      this.#signal.refused();
      return undefined;
    }
    this.used += BULK_BYTES;
    return this.#free.pop() ?? Buffer.allocUnsafeSlow(BULK_BYTES);
  }

  /** The buffer must not be read into or written from after this. */
  release(buffer: Buffer): void {
    this.used -= BULK_BYTES;
    if (this.#free.length < MAX_FREE) this.#free.push(buffer);
    this.#signal.freed(this.used);
  }
}

const SHARED_BYTES = 64 * 1024;

/**
 * Where small reads are copied to before they are written. A chunk that the kernel accepts at once, as it nearly always
 * does, is overwritten by the next one, without an allocation. A chunk that has to wait stays, and the next one goes
 * behind it. A side waits with one chunk at most, so it keeps one slab at most.
 */
class Scratch {
  #slab = Buffer.allocUnsafeSlow(SHARED_BYTES);
  #offset = 0;
  #view = this.#slab;

  /** A copy of the first `length` bytes, good until the next call unless it is kept. */
  copy(source: Buffer, length: number): Buffer {
    if (this.#offset + length > this.#slab.length) {
      this.#slab = Buffer.allocUnsafeSlow(SHARED_BYTES);
      this.#offset = 0;
      this.#view = this.#slab;
    }
    if (this.#view.length !== length) {
      this.#view = this.#slab.subarray(this.#offset, this.#offset + length);
    }
    source.copy(this.#view, 0, 0, length);
    return this.#view;
  }

  keep(): void {
    this.#offset += this.#view.length;
    this.#view = this.#slab.subarray(this.#offset, this.#offset);
  }
}

/** Bytes read of a held client, whose disconnect Node reports only while it reads; the rest stays in the kernel. */
export const HELD_BYTES = 16 * 1024;

export class CopyMemory {
  readonly shared = Buffer.allocUnsafeSlow(SHARED_BYTES);
  /** The first part of it, for the first read of each socket. */
  readonly first = this.shared.subarray(0, HELD_BYTES);
  readonly scratch = new Scratch();
  readonly priority = new AcceptPriority();
  readonly bulk: BulkBuffers;
  /** Sides whose peer accepts no data. */
  readonly stalled: DeadlineQueue<{ probe(): void }>;

  constructor(clock: Clock, limits: Pick<EngineLimits, 'bulkBufferBudget' | 'keepAliveMs'>) {
    this.bulk = new BulkBuffers(limits.bulkBufferBudget);
    this.stalled = new DeadlineQueue(clock, limits.keepAliveMs, (side) => side.probe());
  }
}

export interface Yielding {
  endYield(): void;
}

/** After this many chunks since the last client, a turn of the event loop may be a long one. */
const LONG_TURN = 64;
/** New clients go first for this many turns; then all waiting connections are served. */
const TURNS = 64;

/**
 * Accepts waiting clients before data is relayed. The event loop accepts one client in each turn; with hundreds of busy
 * connections, a turn takes milliseconds. So once a client comes after much data, readers pause after one chunk, for 64
 * turns at most or until no client is waiting.
 */
class AcceptPriority {
  readonly #endTurn = (): void => this.#turnEnds();
  #waiting: Yielding[] = [];
  /** How long clients have gone first. */
  #turns = 0;
  #accepted = false;
  /** Chunks since the last client. */
  #relayed = 0;

  accepted(): void {
    this.#accepted = true;
    if (this.#turns === 0 && this.#relayed >= LONG_TURN) this.#goFirst();
    this.#relayed = 0;
  }

  /** A chunk was relayed. Returns whether its reader has to stop until `endYield`. */
  yields(reader: Yielding): boolean {
    this.#relayed += 1;
    if (this.#turns === 0) return false;
    this.#waiting.push(reader);
    return true;
  }

  #goFirst(): void {
    this.#accepted = false;
    this.#turns += 1;
    setImmediate(this.#endTurn);
  }

  #turnEnds(): void {
    // The first client came in this turn.
    if (this.#turns === 1 || (this.#accepted && this.#turns < TURNS)) {
      this.#goFirst();
      return;
    }
    this.#turns = 0;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const reader of waiting) reader.endYield();
  }
}
