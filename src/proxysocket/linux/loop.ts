import { INTEREST, type Poller } from './sys/poller.ts';
import type { Sys } from './sys/sys.ts';

/** Something that has a descriptor and wants to know when it is ready. */
export interface Pollable {
  /** Bits of `READY`; 0 when it is called because of `again`. */
  ready(mask: number): void;
  /** Its `ready` threw, which is a mistake of this program: let go of everything. */
  failed(error: unknown): void;
}

export interface LoopOptions {
  /** Events of one wait at most. */
  readonly batch?: number;
  /** Told of every mistake after the pollable has been. */
  readonly onFault?: (error: unknown) => void;
  /** Called after every wait, before any event is looked at. */
  readonly onWake?: () => void;
}

/** Work that is collected during a turn. */
export interface TurnEnd {
  /** Called after the events of every turn, before descriptors are closed. */
  endTurn(): void;
}

const BATCH = 256;

/**
 * Waits for descriptors and calls whom they belong to.
 *
 * A descriptor that is given up during a batch of events is closed only after it. Otherwise its number
 * could be that of a new connection by the time that an older event of the batch is looked at.
 */
export class Loop {
  readonly sys: Sys;
  readonly #poller: Poller;
  readonly #onFault: ((error: unknown) => void) | undefined;
  readonly #onWake: (() => void) | undefined;
  /** By descriptor. */
  readonly #owners: (Pollable | undefined)[] = [];
  #ready: Pollable[] = [];
  #serving: Pollable[] = [];
  readonly #turnEnds: TurnEnd[] = [];
  #toClose: number[] = [];
  #toReset: number[] = [];
  #dispatching = false;
  #turns = 0;
  #watched = 0;

  constructor(sys: Sys, options: LoopOptions = {}) {
    this.sys = sys;
    this.#poller = sys.poller(options.batch ?? BATCH);
    this.#onFault = options.onFault;
    this.#onWake = options.onWake;
  }

  /** Descriptors that are being watched. */
  get watched(): number {
    return this.#watched;
  }

  /** Whether somebody is to be called again without an event. */
  get hasWork(): boolean {
    return this.#ready.length > 0;
  }

  /** Watches a descriptor, or hands one that is watched to somebody else. 0, or a negative error number. */
  watch(fd: number, owner: Pollable, interest: number = INTEREST.edges): number {
    const result = this.#poller.add(fd, interest);
    if (result === 0) {
      this.#owners[fd] = owner;
      this.#watched += 1;
    }
    return result;
  }

  /** Gives a watched descriptor to another owner; what it is watched for stays. */
  handOver(fd: number, owner: Pollable): void {
    this.#owners[fd] = owner;
  }

  /** Changes what a watched descriptor is watched for. */
  change(fd: number, interest: number): number {
    return this.#poller.modify(fd, interest);
  }

  /** Stops to watch a descriptor that stays open. */
  unwatch(fd: number): void {
    if (this.#disown(fd)) this.#poller.remove(fd);
  }

  /** Closes a descriptor, watched or not, when no event can be mistaken for one of its successor. */
  close(fd: number): void {
    this.#disown(fd);
    if (this.#dispatching) this.#toClose.push(fd);
    else this.sys.sockets.close(fd);
  }

  /** The same with a reset for the peer. */
  reset(fd: number): void {
    this.#disown(fd);
    if (this.#dispatching) this.#toReset.push(fd);
    else this.sys.sockets.reset(fd);
  }

  /** Calls `ready(0)` in the next turn: there is work that no event will tell of. */
  again(owner: Pollable): void {
    this.#ready.push(owner);
  }

  /** Has somebody called at the end of every turn. */
  atTurnEnd(owner: TurnEnd): void {
    this.#turnEnds.push(owner);
  }

  /** The number of the present turn. */
  get turns(): number {
    return this.#turns;
  }

  /**
   * One wait and everything that came of it. `timeoutMs`: how long to wait at most, -1 for ever;
   * 0 is taken while there is other work. Returns the number of events.
   */
  turn(timeoutMs: number): number {
    const count = this.#poller.wait(this.hasWork ? 0 : timeoutMs);
    this.#onWake?.();
    this.#turns += 1;
    this.#dispatching = true;
    for (let index = 0; index < count; index += 1) {
      const owner = this.#owners[this.#poller.tag(index)];
      if (owner !== undefined) this.#call(owner, this.#poller.mask(index));
    }
    if (this.#ready.length > 0) this.#serve();
    for (const owner of this.#turnEnds) owner.endTurn();
    this.#dispatching = false;
    if (this.#toClose.length > 0 || this.#toReset.length > 0) this.#closeAll();
    return count;
  }

  /** Nothing may be watched any more. */
  end(): void {
    this.#poller.close();
  }

  #disown(fd: number): boolean {
    if (this.#owners[fd] === undefined) return false;
    this.#owners[fd] = undefined;
    this.#watched -= 1;
    return true;
  }

  #serve(): void {
    const list = this.#ready;
    this.#ready = this.#serving;
    this.#serving = list;
    for (const owner of list) this.#call(owner, 0);
    list.length = 0;
  }

  #call(owner: Pollable, mask: number): void {
    try {
      owner.ready(mask);
    } catch (error) {
      owner.failed(error);
      this.#onFault?.(error);
    }
  }

  #closeAll(): void {
    const { sockets } = this.sys;
    for (const fd of this.#toClose) sockets.close(fd);
    for (const fd of this.#toReset) sockets.reset(fd);
    this.#toClose.length = 0;
    this.#toReset.length = 0;
  }
}
