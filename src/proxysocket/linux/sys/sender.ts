import * as k from './abi.ts';
import {
  controlSpace,
  MessageMemory,
  writePeer,
  type DatagramSlots,
  type PeerKey,
} from './datagrams.ts';
import type { Library } from './library.ts';

export type Direction = 'request' | 'answer';

export interface Sending {
  sent(direction: Direction, datagrams: number, bytes: number): void;
  /** Returns whether the socket can still be used: the callee may have closed it. */
  notSent(direction: Direction, datagrams: number, errno: number): boolean;
  /** A message of several datagrams failed, though single ones may succeed: build no more of them. */
  noSegments(direction: Direction): void;
}

/** The destination of a message, on an unconnected socket. */
export interface Recipient {
  readonly key: PeerKey;
  /** The control message with the address to send from; undefined: the socket's own. */
  readonly source: Uint8Array | undefined;
}

/** A datagram, or several of one size (the last may be smaller), in consecutive vectors. */
interface Message {
  owner: Sending | undefined;
  to: Recipient | undefined;
  vector: number;
  count: number;
  bytes: number;
}

const CONTROL_BYTES = 128;
/** Segments of one message, and their total size: the limits of every kernel with segmentation. */
const MAX_SEGMENTS = 64;
const MAX_SEGMENTED_BYTES = 65_000;
const SEGMENT_CONTROL = controlSpace(2);

/**
 * Sends datagrams with few calls: those of one size and one peer as one message, which the kernel or the network card
 * splits again, and all messages of one socket together. `add` queues, `flush` sends; neither allocates.
 */
export class Sender {
  readonly #c: Library['c'];
  readonly #direction: Direction;
  readonly #slots: DatagramSlots;
  readonly #memory: MessageMemory;
  readonly #vectorWords: BigUint64Array;
  readonly #messages: readonly Message[];
  #size = 0;
  #datagrams = 0;

  /** Of datagrams in `slots`, each once until `flush`. */
  constructor({ ffi, c }: Library, direction: Direction, slots: DatagramSlots) {
    const { count } = slots;
    this.#c = c;
    this.#direction = direction;
    this.#slots = slots;
    this.#memory = new MessageMemory(ffi, count, CONTROL_BYTES);
    this.#vectorWords = new BigUint64Array(this.#memory.vectors.bytes.buffer);
    const none = { owner: undefined, to: undefined, vector: 0, count: 0, bytes: 0 };
    this.#messages = Array.from({ length: count }, () => Object.assign({}, none));
  }

  /**
   * Datagrams from one peer to another, in order: those in the slots of a list from index `from` up to `end`. `to` is
   * undefined on a connected socket; `segments`: whether those of one size may be sent as one message.
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
      const count = segments ? this.#segmentRun(slots, start, end) : 1;
      const message = this.#messages[this.#size];
      if (message === undefined) return;
      message.owner = owner;
      message.to = to;
      message.vector = this.#datagrams;
      message.count = count;
      message.bytes = 0;
      for (const next = start + count; start < next; start += 1) {
        message.bytes += this.#addVector(slots[start] ?? 0);
      }
      this.#writeHeader(this.#size, message.vector, count, to);
      this.#size += 1;
    }
  }

  flush(fd: number): void {
    let isUsable = true;
    for (let next = 0; next < this.#size;) {
      const sent: number = isUsable ? this.#send(fd, next) : -k.EBADF;
      for (let index = next; index < next + sent; index += 1) {
        const message = this.#messages[index];
        message?.owner?.sent(this.#direction, message.count, message.bytes);
      }
      next += Math.max(0, sent);
      if (sent >= 0) continue;
      // A call stops at the first message that fails, and reports why only when that is its first one.
      const canContinue = this.#notSent(next, fd, -sent);
      isUsable &&= canContinue;
      next += 1;
    }
    this.#size = 0;
    this.#datagrams = 0;
  }

  /** Sends the messages from `first` on. How many were taken, at least one; or a negative error number. */
  #send(fd: number, first: number): number {
    const address = this.#memory.headers.addressAt(first);
    if (first + 1 < this.#size) return this.#c.sendmmsg(fd, address, this.#size - first, 0);
    // An `mmsghdr` begins with a `msghdr`, and the call for one message costs less.
    const result = this.#c.sendmsg(fd, address, 0);
    return result < 0 ? result : 1;
  }

  #notSent(index: number, fd: number, errno: number): boolean {
    const { owner, to, vector, count } = this.#messages[index] ?? {};
    if (owner === undefined || vector === undefined || count === undefined) return true;
    if (count === 1 || isLasting(errno)) return owner.notSent(this.#direction, count, errno);
    owner.noSegments(this.#direction);
    let isUsable = true;
    for (let each = vector; each < vector + count; each += 1) {
      this.#writeHeader(index, each, 1, to);
      const address = this.#memory.headers.addressAt(index);
      const sent: number = isUsable ? this.#c.sendmsg(fd, address, 0) : -k.EBADF;
      if (sent >= 0) owner.sent(this.#direction, 1, this.#vectorLength(each));
      else if (!owner.notSent(this.#direction, 1, -sent)) isUsable = false;
    }
    return isUsable;
  }

  #addVector(slot: number): number {
    const index = this.#datagrams;
    this.#datagrams += 1;
    const length = this.#slots.length(slot);
    this.#vectorWords[index * 2] = this.#slots.dataAddress(slot);
    this.#memory.vectors.view.setUint32(index * k.IOVEC_BYTES + 8, length, true);
    return length;
  }

  #vectorLength(vector: number): number {
    return this.#memory.vectors.view.getUint32(vector * k.IOVEC_BYTES + 8, true);
  }

  #writeHeader(message: number, vector: number, vectors: number, to: Recipient | undefined): void {
    const { headers, names } = this.#memory;
    const at = message * k.MMSGHDR_BYTES;
    const name = to === undefined ? 0 : writePeer(names, message * k.SOCKADDR_BYTES, to.key);
    const segment = vectors === 1 ? 0 : this.#vectorLength(vector);
    headers.view.setUint32(at + 8, name, true);
    headers.view.setBigUint64(at + 16, this.#memory.vectors.addressAt(vector), true);
    headers.view.setUint32(at + 24, vectors, true);
    headers.view.setUint32(at + 40, this.#writeControl(message, to?.source, segment), true);
  }

  /** Returns the size of the message's control messages. */
  #writeControl(message: number, source: Uint8Array | undefined, segment: number): number {
    const at = message * CONTROL_BYTES;
    const { bytes, view } = this.#memory.controls;
    if (source !== undefined) bytes.set(source, at);
    const length = source?.length ?? 0;
    if (segment === 0) return length;
    view.setBigUint64(at + length, BigInt(k.CMSGHDR_BYTES + 2), true);
    view.setInt32(at + length + 8, k.SOL_UDP, true);
    view.setInt32(at + length + 12, k.UDP_SEGMENT, true);
    view.setUint16(at + length + k.CMSGHDR_BYTES, segment, true);
    return length + SEGMENT_CONTROL;
  }

  /** How many datagrams of a list can go as one message: all of one size, but the last may be smaller. */
  #segmentRun(slots: readonly number[], from: number, end: number): number {
    const size = this.#slots.length(slots[from] ?? 0);
    let bytes = size;
    let count = 1;
    while (from + count < end && count < MAX_SEGMENTS) {
      const next = this.#slots.length(slots[from + count] ?? 0);
      bytes += next;
      if (next > size || next === 0 || bytes > MAX_SEGMENTED_BYTES) break;
      count += 1;
      if (next < size) break;
    }
    return count;
  }
}

/** Errors that single datagrams would have, too. */
function isLasting(errno: number): boolean {
  return isFull(errno) || errno === k.ECONNREFUSED || errno === k.EBADF;
}

/** The kernel takes no more for now. */
export function isFull(errno: number): boolean {
  return errno === k.EAGAIN || errno === k.ENOBUFS;
}
