import { EAGAIN, EBADF, ECONNREFUSED, ENOBUFS } from '../sys/constants.ts';
import type { DatagramSlots } from '../sys/datagram-slots.ts';
import { segmentRun, type Recipient, type SendList } from '../sys/send-list.ts';
import type { Sys } from '../sys/sys.ts';

/** Told what became of datagrams. */
export interface SendOutcome {
  sent(datagrams: number, bytes: number): void;
  /** Returns whether the socket can still be used: whoever is told may have closed it. */
  notSent(datagrams: number, errno: number): boolean;
  /** A message of several datagrams did not get through, though single ones may: make no more of them. */
  noSegments(): void;
}

/** Datagrams from one peer to another that are to be sent one after the other. */
export interface Batch {
  readonly slots: readonly number[];
  /** Whether those of one size may go as one message. */
  readonly segments: boolean;
  /** Undefined on a connected socket. */
  readonly to: Recipient | undefined;
  readonly outcome: SendOutcome;
}

interface Message {
  readonly slots: readonly number[];
  readonly batch: Batch;
}

/** Sends datagrams with as few calls as can be. */
export class Sender {
  readonly #list: SendList;
  /** For what has to be sent in the middle of a list. */
  readonly #apart: SendList;

  /** `capacity`: datagrams of one call of `send`. */
  constructor(sys: Sys, capacity: number) {
    this.#list = sys.sendList(capacity);
    this.#apart = sys.sendList(capacity);
  }

  /** Sends batches through one socket, in order. */
  send(memory: DatagramSlots, fd: number, batches: readonly Batch[]): void {
    sendThrough(this.#list, memory, fd, batches, (batch) =>
      sendThrough(this.#apart, memory, fd, [batch], () => true),
    );
  }
}

/** Returns whether the socket can still be used. `apart` sends a message that failed as single datagrams. */
function sendThrough(
  list: SendList,
  memory: DatagramSlots,
  fd: number,
  batches: readonly Batch[],
  apart: (batch: Batch) => boolean,
): boolean {
  const messages = fill(list, memory, batches);
  let isUsable = true;
  for (let next = 0; next < messages.length;) {
    const sent: number = isUsable ? list.send(fd, next) : -EBADF;
    for (const { slots, batch } of messages.slice(next, next + Math.max(0, sent))) {
      batch.outcome.sent(slots.length, bytesOf(memory, slots));
    }
    next += Math.max(0, sent);
    // A call stops at the first message that fails, and tells why only when that is its first one.
    const failed = sent < 0 ? messages[next] : undefined;
    if (failed === undefined) continue;
    next += 1;
    const { slots, batch } = failed;
    let goesOn: boolean;
    if (slots.length > 1 && !isLasting(-sent)) {
      batch.outcome.noSegments();
      goesOn = apart({ ...batch, slots, segments: false });
    } else {
      goesOn = batch.outcome.notSent(slots.length, -sent);
    }
    isUsable &&= goesOn;
  }
  return isUsable;
}

function fill(list: SendList, memory: DatagramSlots, batches: readonly Batch[]): Message[] {
  const messages: Message[] = [];
  list.clear();
  for (const batch of batches) {
    const { slots, segments, to } = batch;
    for (let from = 0; from < slots.length;) {
      const count = segments ? segmentRun(memory, slots, from) : 1;
      const part = count === slots.length ? slots : slots.slice(from, from + count);
      if (count === 1) list.add(memory, part[0] ?? 0, to);
      else list.addSegmented(memory, part, to);
      messages.push({ slots: part, batch });
      from += count;
    }
  }
  return messages;
}

function bytesOf(memory: DatagramSlots, slots: readonly number[]): number {
  let bytes = 0;
  for (const slot of slots) bytes += memory.length(slot);
  return bytes;
}

/** Errors that would befall single datagrams as well. */
function isLasting(errno: number): boolean {
  return isFull(errno) || errno === ECONNREFUSED || errno === EBADF;
}

/** The kernel takes no more for now. */
export function isFull(errno: number): boolean {
  return errno === EAGAIN || errno === ENOBUFS;
}
