import { MAX_TIMER_MS, type Clock, type Timer } from '../../util/clock.ts';
import type { InheritedSocket } from '../core/inherited.ts';
import { INTEREST, Poller } from './sys/poller.ts';
import type { Sys } from './sys/sys.ts';

/** Sockets that were opened for a listener, in the order in which they were bound. */
export interface OpenedSockets extends Omit<InheritedSocket, 'fd'> {
  readonly slot: string;
  /** That of this thread; undefined: it had one already. */
  readonly own: number | undefined;
  /** For other threads; removed from this thread's ledger soon. */
  readonly others: readonly number[];
}

/** An owner of a descriptor that is called when it is ready. */
export interface Pollable {
  /** Bits such as `EPOLLIN`; 0 when it is called because of `again`. */
  ready(mask: number): void;
  /** Called after its `ready` threw, which is a bug of this program: release everything. */
  failed(error: unknown): void;
}

interface LoopOptions {
  /** Called with every bug after the pollable's `failed`. */
  readonly onFault?: (error: unknown) => void;
  /** Called after every wait, before any event is handled. */
  readonly onWake?: () => void;
  readonly onOpened?: (sockets: OpenedSockets) => void;
}

export interface TurnEnd {
  endTurn(): void;
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
  readonly #poller: Poller;
  readonly #options: LoopOptions;
  readonly #watched: (Watched | undefined)[] = [];
  readonly #ready: Pollable[] = [];
  readonly #turnEnds: TurnEnd[] = [];
  turns = 0;
  #marks = 0;

  constructor(sys: Sys, options: LoopOptions = {}) {
    this.sys = sys;
    this.#poller = new Poller(sys);
    this.#options = options;
  }

  get hasWork(): boolean {
    return this.#ready.length > 0;
  }

  watch(fd: number, owner: Pollable, interest: number = INTEREST.edges): number {
    this.#marks = (this.#marks + 1) | 0;
    const result = this.#poller.add(fd, interest, this.#marks);
    if (result === 0) this.#watched[fd] = { owner, mark: this.#marks };
    return result;
  }

  /** Assigns a watched descriptor to another owner; its interest stays. */
  handOver(fd: number, owner: Pollable): void {
    const watched = this.#watched[fd];
    if (watched !== undefined) this.#watched[fd] = { owner, mark: watched.mark };
  }

  unwatch(fd: number): void {
    if (this.#forget(fd)) this.#poller.remove(fd);
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

  /** Reports the sockets that were opened for a listener of a pool. */
  opened(sockets: OpenedSockets): void {
    this.#options.onOpened?.(sockets);
  }

  atTurnEnd(owner: TurnEnd): void {
    this.#turnEnds.push(owner);
  }

  /** Waits once and handles the events; returns their number. `timeoutMs`: -1 for no limit; unused while `hasWork`. */
  turn(timeoutMs: number): number {
    const count = this.#poller.wait(this.hasWork ? 0 : timeoutMs);
    this.#options.onWake?.();
    this.turns += 1;
    for (let index = 0; index < count; index += 1) {
      const watched = this.#watched[this.#poller.descriptor(index)];
      if (watched === undefined || watched.mark !== this.#poller.mark(index)) continue;
      this.#call(watched.owner, this.#poller.mask(index));
    }
    if (this.hasWork) for (const owner of this.#ready.splice(0)) this.#call(owner, 0);
    for (const owner of this.#turnEnds) owner.endTurn();
    return count;
  }

  end(): void {
    this.#poller.close();
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
      this.#options.onFault?.(error);
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
