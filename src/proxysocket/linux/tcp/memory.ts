import type { ProcessDescriptors } from '../../core/descriptors.ts';
import { LimitSignal } from '../../core/limit-signal.ts';
import { Pinned } from '../sys/memory.ts';
import type { Pipe, Sys } from '../sys/sys.ts';

const KIB = 1024;
/** Size of a read. Larger reads save calls, and with 1 MiB bulk costs a third of `pipe()`. */
const LARGE = 1024 * KIB;
/** The rest that every relay may keep, regardless of the budget. */
const SMALL = 64 * KIB;
const SIZES = [4 * KIB, 16 * KIB, SMALL, LARGE];
/** Free buffers kept for later, of each size. More are left to the collector. */
const MAX_FREE = 16;

/** Pipes of all relays, with a share of the descriptors at most. Beyond that data is copied. */
const MAX_PIPES = 32;
const DESCRIPTORS_PER_PIPE = 2;
const PIPES_PART = 1 / 8;

export interface Kept {
  readonly in: Pinned | Pipe;
  start: number;
  left: number;
}

/**
 * The memory that relays copy through.
 *
 * All relays read into one large buffer and write from it at once, so an idle relay has no memory, and copied data
 * is still in the processor's cache. Only what the kernel does not accept is kept: a small rest is copied; for a
 * large one the buffer itself is kept and replaced. A direction keeps one rest at most, and does not read before it
 * is written: that is the back-pressure. Large rests are within a budget; when it is used up, reads become smaller.
 *
 * A bulk direction does not copy: the kernel moves its data through a pipe (`splice`), which takes 10 to 20 % less
 * time with one such direction and half with eight. Empty pipes are shared; a rest in a pipe counts as a large one.
 */
export class RelayMemory {
  readonly #sys: Sys;
  readonly #descriptors: ProcessDescriptors;
  readonly #budget: number;
  readonly #signal: LimitSignal;
  readonly #free = new Map(SIZES.map((size) => [size, [] as Pinned[]]));
  /** Where to read to. The next read of any relay overwrites it. */
  current: Pinned;
  used = 0;
  readonly #freePipes: Pipe[] = [];
  #pipes = 0;
  /** Fewer where the system has no more, until the next request. */
  #mostPipes = MAX_PIPES;
  #bulkFlows = 0;

  constructor(sys: Sys, budget: number, descriptors: ProcessDescriptors) {
    this.#sys = sys;
    this.#descriptors = descriptors;
    this.#budget = budget;
    this.#signal = new LimitSignal('bulk-buffer-budget', () => budget);
    this.current = new Pinned(sys.ffi, LARGE);
  }

  /** How much may be read at once, so that its rest can be kept. */
  get readLimit(): number {
    if (this.#budget - this.used >= LARGE) return LARGE;
    this.#signal.refused();
    return SMALL;
  }

  /** Keeps the bytes of what was read that are left. */
  keep(from: Pinned | Pipe, start: number, end: number): Kept {
    const left = end - start;
    if (!(from instanceof Pinned)) {
      this.used += LARGE;
      return { in: from, start: 0, left };
    }
    const size = SIZES.find((each) => each >= left) ?? LARGE;
    const free = this.#free.get(size)?.pop() ?? new Pinned(this.#sys.ffi, size);
    if (size === LARGE) {
      this.used += LARGE;
      this.current = free;
      return { in: from, start, left };
    }
    free.bytes.set(from.bytes.subarray(start, end));
    return { in: free, start: 0, left };
  }

  noteBulk(begins: boolean): void {
    this.#bulkFlows += begins ? 1 : -1;
    if (this.#bulkFlows > 0) return;
    this.#mostPipes = MAX_PIPES;
    for (const pipe of this.#freePipes) this.#closePipe(pipe);
    this.#freePipes.length = 0;
  }

  /** An empty pipe to move bytes through; undefined where they are to be copied. Call `givePipe` or `keep` next. */
  takePipe(): Pipe | undefined {
    if (this.#bulkFlows === 0 || this.#budget - this.used < LARGE) return undefined;
    const free = this.#freePipes.pop();
    if (free !== undefined || this.#pipes >= this.#mostPipes) return free;
    const share = this.#descriptors.capacity * PIPES_PART;
    if ((this.#pipes + 1) * DESCRIPTORS_PER_PIPE > share) return undefined;
    if (!this.#descriptors.acquire(DESCRIPTORS_PER_PIPE, 'TCP', true)) return undefined;
    const pipe = this.#sys.openPipe();
    if (pipe === undefined) {
      this.#mostPipes = this.#pipes;
      this.#descriptors.release(DESCRIPTORS_PER_PIPE);
    } else this.#pipes += 1;
    return pipe;
  }

  givePipe(pipe: Pipe): void {
    if (this.#bulkFlows === 0) this.#closePipe(pipe);
    else this.#freePipes.push(pipe);
  }

  release({ in: memory, left }: Kept): void {
    if (memory instanceof Pinned) {
      const free = this.#free.get(memory.length) ?? [];
      if (free.length < MAX_FREE) free.push(memory);
      if (memory.length < LARGE) return;
    } else if (left > 0) this.#closePipe(memory);
    else this.givePipe(memory);
    this.used -= LARGE;
    this.#signal.freed(this.used);
  }

  #closePipe(pipe: Pipe): void {
    this.#pipes -= 1;
    this.#sys.closePipe(pipe);
    this.#descriptors.release(DESCRIPTORS_PER_PIPE);
  }
}
