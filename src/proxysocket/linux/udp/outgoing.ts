import { EAGAIN, EBADF, ECONNREFUSED, ENOBUFS } from '../sys/abi.ts';
import { type DatagramSlots, segmentRun, type Recipient, type SendList } from '../sys/datagrams.ts';
import type { Sys } from '../sys/sys.ts';

/** To the endpoint, or back to the client. */
export type Direction = 'request' | 'answer';

/** The session whose datagrams are sent. */
export interface Sending {
  sent(direction: Direction, datagrams: number, bytes: number): void;
  /** Returns whether the socket can still be used: the callee may have closed it. */
  notSent(direction: Direction, datagrams: number, errno: number): boolean;
  /** A message of several datagrams failed, though single ones may succeed: build no more of them. */
  noSegments(direction: Direction): void;
}

/**
 * Sends datagrams with as few calls as possible: those of one size and one peer as one message, and all
 * messages of one socket in one call.
 *
 * `add` queues, `flush` sends; neither allocates.
 */
export class Sender {
  readonly #direction: Direction;
  readonly #memory: DatagramSlots;
  readonly #list: SendList;
  /** For datagrams that have to be sent one by one within a list. */
  readonly #apart: SendList;
  /** For each message: its session, its destination, and its part of a list of slots. */
  readonly #owners: Sending[] = [];
  readonly #recipients: (Recipient | undefined)[] = [];
  readonly #slots: (readonly number[])[] = [];
  readonly #starts: number[] = [];
  readonly #counts: number[] = [];

  /** Of datagrams in `memory`. */
  constructor(sys: Sys, direction: Direction, memory: DatagramSlots) {
    this.#direction = direction;
    this.#memory = memory;
    this.#list = sys.sendList(memory.count);
    this.#apart = sys.sendList(1);
  }

  /**
   * Datagrams from one peer to another, in order: those in the slots of a list from index `from` up to `end`. The
   * list must not change until `flush`. `to` is undefined on a connected socket; `segments`: whether those of one
   * size may be sent as one message.
   */
  add(
    owner: Sending,
    slots: readonly number[],
    from: number,
    end: number,
    to: Recipient | undefined,
    segments: boolean,
  ): void {
    for (let start = from; start < end;) {
      const count = segments ? segmentRun(this.#memory, slots, start, end) : 1;
      this.#list.add(this.#memory, slots, start, count, to);
      this.#owners.push(owner);
      this.#recipients.push(to);
      this.#slots.push(slots);
      this.#starts.push(start);
      this.#counts.push(count);
      start += count;
    }
  }

  /** Sends all added messages, through one socket. */
  flush(fd: number): void {
    let isUsable = true;
    for (let next = 0; next < this.#owners.length;) {
      const sent: number = isUsable ? this.#list.send(fd, next) : -EBADF;
      for (let message = next; message < next + sent; message += 1) this.#sent(message);
      next += Math.max(0, sent);
      if (sent >= 0) continue;
      // A call stops at the first message that fails, and reports why only when that is its first one.
      const canContinue = this.#notSent(next, fd, -sent);
      isUsable &&= canContinue;
      next += 1;
    }
    this.#list.clear();
    for (const list of [this.#owners, this.#recipients, this.#slots, this.#starts, this.#counts]) {
      list.length = 0;
    }
  }

  #sent(message: number): void {
    const count = this.#counts[message] ?? 0;
    const from = this.#starts[message] ?? 0;
    const slots = this.#slots[message] ?? [];
    let bytes = 0;
    for (let index = from; index < from + count; index += 1) {
      bytes += this.#memory.length(slots[index] ?? 0);
    }
    this.#owners[message]?.sent(this.#direction, count, bytes);
  }

  /** Returns whether the socket can still be used. */
  #notSent(message: number, fd: number, errno: number): boolean {
    const owner = this.#owners[message];
    const count = this.#counts[message] ?? 0;
    if (owner === undefined) return true;
    if (count === 1 || isLasting(errno)) return owner.notSent(this.#direction, count, errno);
    owner.noSegments(this.#direction);
    const from = this.#starts[message] ?? 0;
    let isUsable = true;
    for (let index = from; index < from + count; index += 1) {
      const canContinue = this.#sendApart(message, index, isUsable ? fd : -1);
      isUsable &&= canContinue;
    }
    return isUsable;
  }

  #sendApart(message: number, index: number, fd: number): boolean {
    const owner = this.#owners[message];
    const slots = this.#slots[message] ?? [];
    this.#apart.add(this.#memory, slots, index, 1, this.#recipients[message]);
    const sent = this.#apart.send(fd, 0);
    this.#apart.clear();
    if (sent < 0) return owner?.notSent(this.#direction, 1, -sent) ?? true;
    owner?.sent(this.#direction, 1, this.#memory.length(slots[index] ?? 0));
    return true;
  }
}

/** Errors that single datagrams would have, too. */
function isLasting(errno: number): boolean {
  return isFull(errno) || errno === ECONNREFUSED || errno === EBADF;
}

/** The kernel takes no more for now. */
export function isFull(errno: number): boolean {
  return errno === EAGAIN || errno === ENOBUFS;
}
