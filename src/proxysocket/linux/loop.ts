import { MAX_TIMER_MS, type Clock, type Timer } from '../../util/clock.ts';
import * as k from './sys/abi.ts';
import { addressOf, Pinned } from './sys/memory.ts';
import type { Sys } from './sys/sys.ts';

/** Events to wait for. Errors and hang-ups always come. */
export const INTEREST = {
  /** Readable, reported repeatedly while it lasts. */
  readable: k.EPOLLIN,
  /** The end of the stream only, once. */
  end: (k.EPOLLRDHUP | k.EPOLLET) >>> 0,
  /** Readable, writable and the end of the stream, reported once per change. */
  edges: (k.EPOLLIN | k.EPOLLOUT | k.EPOLLRDHUP | k.EPOLLET) >>> 0,
} as const;

/** Events of one wait at most. */
const AT_ONCE = 256;
/** Where the memory of `epoll_ctl` begins, behind that of events. */
const CHANGE_WORD = AT_ONCE * k.EPOLL_EVENT_WORDS;

/** An owner of a descriptor that is called when it is ready. */
export interface Pollable {
  /** Bits such as `EPOLLIN`; 0 when it is called because of `again`. */
  ready(mask: number): void;
  /** Called after its `ready` threw, which is a bug of this program: release everything. */
  failed(error: unknown): void;
}

interface Watched {
  readonly owner: Pollable;
  /** Distinguishes this use of the descriptor from earlier ones. */
  readonly mark: number;
}

/**
 * Waits for descriptors and calls their owners. Descriptors are closed and reused even within a batch of events, so
 * each use of a number has a mark of its own, which comes back with its events.
 */
export class Loop {
  readonly sys: Sys;
  readonly clock = new LoopClock();
  readonly #epoll: number;
  readonly #events: Pinned;
  readonly #words: Int32Array;
  readonly #change: bigint;
  readonly #onFault: (error: unknown) => void;
  readonly #watched: (Watched | undefined)[] = [];
  readonly #ready: Pollable[] = [];
  readonly #turnEnds: (() => void)[] = [];
  turns = 0;
  #marks = 0;

  /** `onFault`: called with every bug after the pollable's `failed`. Throws the system's error. */
  constructor(sys: Sys, onFault: (error: unknown) => void = () => undefined) {
    this.sys = sys;
    this.#onFault = onFault;
    this.#events = new Pinned(sys.ffi, (CHANGE_WORD + k.EPOLL_EVENT_WORDS) * 4);
    this.#words = new Int32Array(this.#events.bytes.buffer);
    this.#change = addressOf(this.#events, CHANGE_WORD * 4);
    this.#epoll = sys.c.epoll_create1(k.CLOEXEC);
    if (this.#epoll < 0) throw k.systemError(-this.#epoll, 'epoll_create1');
    sys.ledger.opened(this.#epoll);
  }

  get hasWork(): boolean {
    return this.#ready.length > 0;
  }

  watch(fd: number, owner: Pollable, interest: number = INTEREST.edges): number {
    this.#marks = (this.#marks + 1) | 0;
    const result = this.#control(k.EPOLL_CTL_ADD, fd, interest);
    if (result === 0) this.#watched[fd] = { owner, mark: this.#marks };
    return result;
  }

  unwatch(fd: number): void {
    if (this.#forget(fd)) this.#control(k.EPOLL_CTL_DEL, fd, 0);
  }

  close(fd: number): void {
    this.#forget(fd);
    this.sys.close(fd);
  }

  /** The same with a reset for the peer. */
  reset(fd: number): void {
    this.#forget(fd);
    this.sys.reset(fd);
  }

  /** Calls `ready(0)` in the next turn: there is work without an event. */
  again(owner: Pollable): void {
    this.#ready.push(owner);
  }

  atTurnEnd(callback: () => void): void {
    this.#turnEnds.push(callback);
  }

  /**
   * Waits once and handles the events; returns their number. `timeoutMs`: default, until the next timer; -1 for no
   * limit; unused while `hasWork`.
   */
  turn(timeoutMs = this.clock.waitMs()): number {
    const { sys } = this;
    const words = this.#words;
    const waitMs = this.hasWork ? 0 : timeoutMs;
    // Negative after a signal.
    const count = sys.c.epoll_wait(this.#epoll, this.#events.address, AT_ONCE, waitMs);
    this.clock.tick();
    this.turns += 1;
    for (let index = 0; index < count; index += 1) {
      const at = index * k.EPOLL_EVENT_WORDS;
      const watched = this.#watched[words[at + k.EPOLL_DATA_WORD] ?? -1];
      if (watched === undefined || watched.mark !== words[at + k.EPOLL_DATA_WORD + 1]) continue;
      this.#call(watched.owner, words[at] ?? 0);
    }
    if (this.hasWork) for (const owner of this.#ready.splice(0)) this.#call(owner, 0);
    for (const callback of this.#turnEnds) callback();
    this.clock.run();
    return Math.max(0, count);
  }

  /** Takes turns with Node's loop, until the result is called. */
  takeTurns(): () => void {
    let isTurning = true;
    const turn = (): void => {
      if (!isTurning) return;
      this.turn(0);
      setImmediate(turn);
    };
    setImmediate(turn);
    return () => {
      isTurning = false;
    };
  }

  end(): void {
    this.sys.close(this.#epoll);
  }

  /** Returns 0, or a negative errno. The mark comes back with the events. */
  #control(operation: number, fd: number, interest: number): number {
    const words = this.#words;
    words[CHANGE_WORD] = interest;
    words[CHANGE_WORD + k.EPOLL_DATA_WORD] = fd;
    words[CHANGE_WORD + k.EPOLL_DATA_WORD + 1] = this.#marks;
    return this.sys.c.epoll_ctl(this.#epoll, operation, fd, this.#change);
  }

  #forget(fd: number): boolean {
    if (this.#watched[fd] === undefined) return false;
    this.#watched[fd] = undefined;
    return true;
  }

  #call(owner: Pollable, mask: number): void {
    try {
      owner.ready(mask);
    } catch (error) {
      owner.failed(error);
      this.#onFault(error);
    }
  }
}

interface Entry {
  readonly at: number;
  readonly callback: () => void;
}

/** The clock of a blocking loop, whose timers run between waits. They are few, so a linear search is enough. */
export class LoopClock implements Clock {
  readonly #read: () => number;
  readonly #timers: Entry[] = [];
  #now: number;

  /** `read` returns the time in milliseconds, which must not go back. */
  constructor(read: () => number = () => performance.now()) {
    this.#read = read;
    this.#now = read();
  }

  /** The time at which the current turn began; reading it costs nothing. */
  now(): number {
    return this.#now;
  }

  setTimer(ms: number, callback: () => void): Timer {
    const entry: Entry = { at: this.#now + ms, callback };
    const before = this.#timers.findLastIndex(({ at }) => at <= entry.at);
    this.#timers.splice(before + 1, 0, entry);
    return { cancel: () => void this.#remove(entry) };
  }

  /** Maximum duration of a wait until the next timer: whole milliseconds, -1 when there is none. */
  waitMs(): number {
    const [first] = this.#timers;
    if (first === undefined) return -1;
    return Math.min(Math.max(0, Math.ceil(first.at - this.#read())), MAX_TIMER_MS);
  }

  /** Call it after every wait, before handling events. */
  tick(): void {
    this.#now = this.#read();
  }

  /** Runs due timers, in order of time. New timers wait for the next call. */
  run(): void {
    const [first] = this.#timers;
    if (first === undefined || first.at > this.#now) return;
    const due = this.#timers.filter(({ at }) => at <= this.#now);
    for (const entry of due) if (this.#remove(entry)) entry.callback();
  }

  #remove(entry: Entry): boolean {
    const index = this.#timers.indexOf(entry);
    if (index >= 0) this.#timers.splice(index, 1);
    return index >= 0;
  }
}
