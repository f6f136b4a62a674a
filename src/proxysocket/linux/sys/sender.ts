import {
  CMSGHDR_BYTES,
  EAGAIN,
  EBADF,
  ECONNREFUSED,
  ENOBUFS,
  IOVEC_BYTES,
  MMSGHDR_BYTES,
  SOL_UDP,
  UDP_SEGMENT,
} from './abi.ts';
import { controlSpace, DatagramSlots } from './datagrams.ts';
import type { Library } from './library.ts';
import { addressOf, Pinned, PeerName } from './memory.ts';

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

/** The destination of a message, on an unconnected socket. */
export interface Recipient {
  readonly name: PeerName;
  /** 16 for IPv4, 28 for IPv6. */
  readonly nameLength: number;
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

/** Room for the source address and the segment size of one message. */
const CONTROL_BYTES = 128;
/** Segments of one message, and their total size: the limits of every kernel with segmentation. */
const MAX_SEGMENTS = 64;
const MAX_SEGMENTED_BYTES = 65_000;
const SEGMENT_CONTROL = controlSpace(2);

/**
 * Sends datagrams with as few calls as possible: those of one size and one peer as one message, which the kernel or the
 * network card splits again, and all messages of one socket in one call.
 *
 * `add` queues, `flush` sends; neither allocates.
 */
export class Sender {
  readonly #c: Library['c'];
  readonly #direction: Direction;
  readonly #memory: DatagramSlots;
  readonly #headers: Pinned;
  readonly #vectors: Pinned;
  readonly #controls: Pinned;
  readonly #vectorWords: BigUint64Array;
  readonly #headerAddresses: readonly bigint[];
  readonly #vectorAddresses: readonly bigint[];
  readonly #controlAddresses: readonly bigint[];
  readonly #messages: readonly Message[];
  #size = 0;
  #datagrams = 0;

  /** Of datagrams in `memory`, each once until `flush`. */
  constructor(lib: Library, direction: Direction, memory: DatagramSlots) {
    const { count } = memory;
    this.#c = lib.c;
    this.#direction = direction;
    this.#memory = memory;
    this.#headers = Pinned.alloc(lib.ffi, count * MMSGHDR_BYTES);
    this.#vectors = Pinned.alloc(lib.ffi, count * IOVEC_BYTES);
    this.#controls = Pinned.alloc(lib.ffi, count * CONTROL_BYTES);
    this.#vectorWords = new BigUint64Array(this.#vectors.bytes.buffer);
    const each = (of: Pinned, bytes: number): bigint[] =>
      Array.from({ length: count }, (_, index) => addressOf(of, index * bytes));
    this.#headerAddresses = each(this.#headers, MMSGHDR_BYTES);
    this.#vectorAddresses = each(this.#vectors, IOVEC_BYTES);
    this.#controlAddresses = each(this.#controls, CONTROL_BYTES);
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

  /** Sends all added messages, through one socket. */
  flush(fd: number): void {
    let isUsable = true;
    for (let next = 0; next < this.#size;) {
      const sent: number = isUsable ? this.#send(fd, next) : -EBADF;
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
    const address = this.#headerAddresses[first] ?? 0n;
    if (first + 1 < this.#size) return this.#c.sendmmsg(fd, address, this.#size - first, 0);
    // An `mmsghdr` begins with a `msghdr`, and the call for one message costs less.
    const result = this.#c.sendmsg(fd, address, 0);
    return result < 0 ? result : 1;
  }

  /** Returns whether the socket can still be used. */
  #notSent(index: number, fd: number, errno: number): boolean {
    const { owner, to, vector, count } = this.#messages[index] ?? {};
    if (owner === undefined || vector === undefined || count === undefined) return true;
    if (count === 1 || isLasting(errno)) return owner.notSent(this.#direction, count, errno);
    owner.noSegments(this.#direction);
    let isUsable = true;
    for (let each = vector; each < vector + count; each += 1) {
      this.#writeHeader(index, each, 1, to);
      const address = this.#headerAddresses[index] ?? 0n;
      const sent: number = isUsable ? this.#c.sendmsg(fd, address, 0) : -EBADF;
      if (sent >= 0) owner.sent(this.#direction, 1, this.#vectorLength(each));
      else if (!owner.notSent(this.#direction, 1, -sent)) isUsable = false;
    }
    return isUsable;
  }

  /** Returns the datagram's length. */
  #addVector(slot: number): number {
    const index = this.#datagrams;
    this.#datagrams += 1;
    const length = this.#memory.length(slot);
    this.#vectorWords[index * 2] = DatagramSlots.dataAddress(this.#memory, slot);
    this.#vectors.view.setUint32(index * IOVEC_BYTES + 8, length, true);
    return length;
  }

  #vectorLength(vector: number): number {
    return this.#vectors.view.getUint32(vector * IOVEC_BYTES + 8, true);
  }

  #writeHeader(message: number, vector: number, vectors: number, to: Recipient | undefined): void {
    const { view } = this.#headers;
    const at = message * MMSGHDR_BYTES;
    view.setBigUint64(at, to === undefined ? 0n : PeerName.addressOf(to.name), true);
    view.setUint32(at + 8, to?.nameLength ?? 0, true);
    view.setBigUint64(at + 16, this.#vectorAddresses[vector] ?? 0n, true);
    view.setUint32(at + 24, vectors, true);
    const segment = vectors === 1 ? 0 : this.#vectorLength(vector);
    const control = this.#writeControl(message, to?.source, segment);
    view.setBigUint64(at + 32, control === 0 ? 0n : (this.#controlAddresses[message] ?? 0n), true);
    view.setUint32(at + 40, control, true);
  }

  /** Returns the size of the message's control messages. */
  #writeControl(message: number, source: Uint8Array | undefined, segment: number): number {
    const at = message * CONTROL_BYTES;
    let length = 0;
    if (source !== undefined) {
      this.#controls.bytes.set(source, at);
      length = source.length;
    }
    if (segment === 0) return length;
    const { view } = this.#controls;
    view.setBigUint64(at + length, BigInt(CMSGHDR_BYTES + 2), true);
    view.setInt32(at + length + 8, SOL_UDP, true);
    view.setInt32(at + length + 12, UDP_SEGMENT, true);
    view.setUint16(at + length + CMSGHDR_BYTES, segment, true);
    return length + SEGMENT_CONTROL;
  }

  /**
   * How many datagrams of a list, from one index up to another, can go as one message: all have the size of the first,
   * but the last, which may be smaller. At least 1.
   */
  #segmentRun(slots: readonly number[], from: number, end: number): number {
    const size = this.#memory.length(slots[from] ?? 0);
    if (size === 0) return 1;
    let bytes = size;
    let count = 1;
    while (from + count < end && count < MAX_SEGMENTS) {
      const next = this.#memory.length(slots[from + count] ?? 0);
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
  return isFull(errno) || errno === ECONNREFUSED || errno === EBADF;
}

/** The kernel takes no more for now. */
export function isFull(errno: number): boolean {
  return errno === EAGAIN || errno === ENOBUFS;
}
