import type { Clock } from '../../../util/clock.ts';
import { LimitSignal } from '../../core/limit-signal.ts';
import { DeadlineQueue } from '../../core/timers.ts';
import type { EngineLimits } from '../../limits.ts';

const LARGE = 1024 * 1024;
const MEDIUM = 256 * 1024;

/** Free buffers kept for reuse, of each size. More are left to the garbage collector. */
const MAX_FREE = 16;

/**
 * Private read buffers for bulk flows, within a budget. With 1 MiB a flow costs a third of the CPU of `pipe()`, with
 * 256 KiB about half. A quarter of the budget is for the small ones, so that a late flow gets something; without any,
 * the shared buffer is slower.
 */
class BulkBuffers {
  readonly #budget: number;
  readonly #signal: LimitSignal;
  readonly #freeLarge: Buffer[] = [];
  readonly #freeMedium: Buffer[] = [];
  #large = 0;
  #medium = 0;

  constructor(budget: number) {
    this.#budget = budget;
    this.#signal = new LimitSignal('bulk-buffer-budget', () => budget);
  }

  get used(): number {
    return this.#large + this.#medium;
  }

  acquire(): Buffer | undefined {
    if (this.#large + LARGE <= this.#budget * 0.75 && this.used + LARGE <= this.#budget) {
      this.#large += LARGE;
      return this.#freeLarge.pop() ?? Buffer.allocUnsafeSlow(LARGE);
    }
    if (this.used + MEDIUM <= this.#budget) {
      this.#medium += MEDIUM;
      return this.#freeMedium.pop() ?? Buffer.allocUnsafeSlow(MEDIUM);
    }
    this.#signal.refused();
    return undefined;
  }

  /** The buffer must not be read into or written from after this. */
  release(buffer: Buffer): void {
    const large = buffer.length === LARGE;
    if (large) this.#large -= LARGE;
    else this.#medium -= MEDIUM;
    const free = large ? this.#freeLarge : this.#freeMedium;
    if (free.length < MAX_FREE) free.push(buffer);
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

/** A turn of the event loop that relays this many chunks is a long one. */
const LONG_TURN = 64;
/** New clients go first for this many turns; then all waiting connections are served. */
const TURNS = 64;

/**
 * Accepts waiting clients before data is relayed. The event loop accepts one client in each turn; with hundreds of busy
 * connections, a turn takes milliseconds. So once clients arrive in consecutive long turns, readers pause after one
 * chunk, for 64 turns at most or until no client is waiting.
 */
class AcceptPriority {
  readonly #endTurn = (): void => this.#turnEnds();
  #waiting: Yielding[] = [];
  /** Turns are measured: a client came after much data. */
  #isMeasuring = false;
  /** Consecutive turns with a client while turns are measured. Clients go first from the second one on, if that is long. */
  #turns = 0;
  #accepted = false;
  /** Chunks in this turn; while turns are not measured, since the last client. */
  #relayed = 0;

  accepted(): void {
    this.#accepted = true;
    if (this.#isMeasuring) return;
    this.#isMeasuring = this.#relayed >= LONG_TURN;
    this.#relayed = 0;
    if (this.#isMeasuring) setImmediate(this.#endTurn);
  }

  /** A chunk was relayed. Returns whether its reader has to stop until `endYield`. */
  yields(reader: Yielding): boolean {
    this.#relayed += 1;
    if (this.#turns < 2) return false;
    this.#waiting.push(reader);
    return true;
  }

  #turnEnds(): void {
    const isLong = this.#relayed >= LONG_TURN;
    this.#turns = this.#accepted ? this.#turns + 1 : 0;
    if (this.#turns === 2 && !isLong) this.#turns = 0;
    this.#isMeasuring = this.#turns > 0;
    if (this.#isMeasuring) setImmediate(this.#endTurn);
    this.#accepted = false;
    this.#relayed = 0;
    const isOver = this.#turns === 0 || this.#turns % TURNS === 2;
    if (!isOver || this.#waiting.length === 0) return;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const reader of waiting) reader.endYield();
  }
}
