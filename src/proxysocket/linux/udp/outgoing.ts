import { EAGAIN, ECONNREFUSED, ENOBUFS } from '../sys/constants.ts';
import type { DatagramSlots } from '../sys/datagram-slots.ts';
import { segmentRun, type Recipient, type SendList } from '../sys/send-list.ts';

/** Told what became of datagrams. */
export interface SendOutcome {
  sent(datagrams: number, bytes: number): void;
  /** Whoever is told may end; then nothing more is sent. */
  notSent(datagrams: number, errno: number): void;
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

/** Sends batches through one socket with as few calls as can be. The list is used up. */
export function sendBatches(
  list: SendList,
  memory: DatagramSlots,
  fd: number,
  batches: readonly Batch[],
): void {
  const messages: Message[] = [];
  list.clear();
  for (const batch of batches) {
    const { slots, segments, to } = batch;
    for (let from = 0; from < slots.length;) {
      const count = segments ? segmentRun(memory, slots, from) : 1;
      const part = slots.slice(from, from + count);
      if (count === 1) list.add(memory, part[0] ?? 0, to);
      else list.addSegmented(memory, part, to);
      messages.push({ slots: part, batch });
      from += count;
    }
  }
  const apart: Batch[] = [];
  for (let next = 0; next < messages.length;) {
    const sent = list.send(fd, next);
    for (const { slots, batch } of messages.slice(next, next + Math.max(0, sent))) {
      batch.outcome.sent(slots.length, bytesOf(memory, slots));
    }
    next += Math.max(0, sent);
    if (sent > 0) continue;
    // A call stops at the first message that fails, and tells why only when that is its first one.
    const failed = messages[next];
    next += 1;
    if (failed === undefined) continue;
    const { slots, batch } = failed;
    if (slots.length > 1 && !isLasting(-sent)) {
      batch.outcome.noSegments();
      apart.push({ ...batch, slots, segments: false });
    } else {
      batch.outcome.notSent(slots.length, -sent);
    }
  }
  if (apart.length > 0) sendBatches(list, memory, fd, apart);
}

function bytesOf(memory: DatagramSlots, slots: readonly number[]): number {
  let bytes = 0;
  for (const slot of slots) bytes += memory.length(slot);
  return bytes;
}

/** Errors that would befall single datagrams as well. */
function isLasting(errno: number): boolean {
  return isFull(errno) || errno === ECONNREFUSED;
}

/** The kernel takes no more for now. */
export function isFull(errno: number): boolean {
  return errno === EAGAIN || errno === ENOBUFS;
}
