import { SOL_UDP, UDP_SEGMENT } from './constants.ts';
import { controlSpace, DatagramSlots } from './datagram-slots.ts';
import { CMSGHDR_BYTES, IOVEC_BYTES, MMSGHDR_BYTES } from './layout.ts';
import type { Library } from './library.ts';
import { addressOf, Pinned, PeerName } from './memory.ts';

/** Room for the source address and the segment size of one message. */
const CONTROL_BYTES = 128;
/** Segments of one message, and their bytes in all: within what every kernel with segmentation takes. */
const MAX_SEGMENTS = 64;
const MAX_SEGMENTED_BYTES = 65_000;
const SEGMENT_CONTROL = controlSpace(2);

/** Whom a message goes to, on a socket that is not connected. */
export interface Recipient {
  readonly name: PeerName;
  /** 16 for IPv4, 28 for IPv6. */
  readonly nameLength: number;
  /** The control message with the address to send from; undefined: the socket's own. */
  readonly source: Uint8Array | undefined;
}

/**
 * Messages to be sent by one call. A message is a datagram, or several of one size (the last may be
 * smaller), which the kernel or the network card takes apart again: that is sent at the price of one.
 */
export class SendList {
  readonly #c: Library['c'];
  readonly #errno: Int32Array;
  readonly #headers: Pinned;
  readonly #vectors: Pinned;
  readonly #controls: Pinned;
  readonly #vectorWords: BigUint64Array;
  readonly #headerAddresses: readonly bigint[];
  readonly #vectorAddresses: readonly bigint[];
  readonly #controlAddresses: readonly bigint[];
  #messages = 0;
  #datagrams = 0;

  /** `capacity`: datagrams. */
  constructor(lib: Library, capacity: number) {
    this.#c = lib.c;
    this.#errno = lib.errno;
    this.#headers = Pinned.alloc(lib.ffi, capacity * MMSGHDR_BYTES);
    this.#vectors = Pinned.alloc(lib.ffi, capacity * IOVEC_BYTES);
    this.#controls = Pinned.alloc(lib.ffi, capacity * CONTROL_BYTES);
    this.#vectorWords = new BigUint64Array(this.#vectors.bytes.buffer);
    const each = (memory: Pinned, bytes: number): bigint[] =>
      Array.from({ length: capacity }, (_, index) => addressOf(memory, index * bytes));
    this.#headerAddresses = each(this.#headers, MMSGHDR_BYTES);
    this.#vectorAddresses = each(this.#vectors, IOVEC_BYTES);
    this.#controlAddresses = each(this.#controls, CONTROL_BYTES);
  }

  get messages(): number {
    return this.#messages;
  }

  clear(): void {
    this.#messages = 0;
    this.#datagrams = 0;
  }

  /**
   * Adds a message: the datagrams in `count` slots that a list names from an index on. The sizes of
   * several must allow it (see `segmentRun`). `to` is undefined on a connected socket.
   */
  add(
    memory: DatagramSlots,
    slots: readonly number[],
    from: number,
    count: number,
    to: Recipient | undefined,
  ): void {
    const first = this.#datagrams;
    for (let index = from; index < from + count; index += 1) {
      this.#addVector(memory, slots[index] ?? 0);
    }
    this.#addHeader(first, count, to, count === 1 ? 0 : memory.length(slots[from] ?? 0));
  }

  /** Sends the messages from `first` on. How many were taken, at least one; or a negative error number. */
  send(fd: number, first: number): number {
    const address = this.#headerAddresses[first] ?? 0n;
    // An `mmsghdr` begins with a `msghdr`, and the call for one message costs less.
    const isLast = first + 1 === this.#messages;
    const result = isLast
      ? this.#c.sendmsg(fd, address, 0)
      : this.#c.sendmmsg(fd, address, this.#messages - first, 0);
    if (result < 0) return -(this.#errno[0] ?? 0);
    return isLast ? 1 : result;
  }

  #addVector(memory: DatagramSlots, slot: number): void {
    const index = this.#datagrams;
    this.#datagrams += 1;
    this.#vectorWords[index * 2] = DatagramSlots.dataAddress(memory, slot);
    this.#vectors.view.setUint32(index * IOVEC_BYTES + 8, memory.length(slot), true);
  }

  #addHeader(vector: number, vectors: number, to: Recipient | undefined, segment: number): void {
    const message = this.#messages;
    this.#messages += 1;
    const { view } = this.#headers;
    const at = message * MMSGHDR_BYTES;
    view.setBigUint64(at, to === undefined ? 0n : PeerName.addressOf(to.name), true);
    view.setUint32(at + 8, to?.nameLength ?? 0, true);
    view.setBigUint64(at + 16, this.#vectorAddresses[vector] ?? 0n, true);
    view.setUint32(at + 24, vectors, true);
    const control = this.#addControl(message, to?.source, segment);
    view.setBigUint64(at + 32, control === 0 ? 0n : (this.#controlAddresses[message] ?? 0n), true);
    view.setUint32(at + 40, control, true);
  }

  /** The bytes of the message's control messages. */
  #addControl(message: number, source: Uint8Array | undefined, segment: number): number {
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
}

/**
 * How many datagrams of a list, from one index up to another, can go as one message: all have the size
 * of the first, but the last, which may be smaller. At least 1.
 */
export function segmentRun(
  memory: DatagramSlots,
  slots: readonly number[],
  from: number,
  end: number,
): number {
  const size = memory.length(slots[from] ?? 0);
  if (size === 0) return 1;
  let bytes = size;
  let count = 1;
  while (from + count < end && count < MAX_SEGMENTS) {
    const next = memory.length(slots[from + count] ?? 0);
    bytes += next;
    if (next > size || next === 0 || bytes > MAX_SEGMENTED_BYTES) break;
    count += 1;
    if (next < size) break;
  }
  return count;
}
