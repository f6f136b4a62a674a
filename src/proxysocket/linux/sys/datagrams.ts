import * as k from './abi.ts';
import type { FfiModule, Library } from './library.ts';
import { PinnedArray, type Pinned } from './memory.ts';

/** More than any datagram has. */
const PAYLOAD = 65_535;
/**
 * From one slot to the next: an odd number of cache lines more than 64 KiB. The beginnings of slots that
 * are exactly 64 KiB apart would all fall on the same few lines of the cache.
 */
const STRIDE = PAYLOAD + 1 + 64;
/** Room for the address that a datagram was sent to. */
const CONTROL_BYTES = 64;

/** Room for the address to send from, and a segment size. */
const SENT_CONTROL_BYTES = 128;
/** Segments of one message, and their total size: the limits of every kernel with segmentation. */
const MAX_SEGMENTS = 64;
const MAX_SEGMENTED_BYTES = 65_000;
const SEGMENT_CONTROL = controlSpace(2);

/** What identifies a peer: a number for IPv4, a text for IPv6. Equal for equal addresses and ports. */
export type PeerKey = number | string;

function writePeer({ view }: Pinned, offset: number, peer: PeerKey): number {
  if (typeof peer === 'number') {
    view.setUint16(offset, k.AF_INET, true);
    view.setUint16(offset + 2, peer % 65_536);
    view.setUint32(offset + 4, Math.floor(peer / 65_536));
    return k.SOCKADDR_IN_BYTES;
  }
  view.setUint16(offset, k.AF_INET6, true);
  for (let index = 0; index < peer.length; index += 1) {
    view.setUint8(offset + 2 + index, peer.charCodeAt(index));
  }
  return k.SOCKADDR_IN6_BYTES;
}

/** Whose datagrams are sent. `to`: undefined on a connected socket. */
export interface Sending {
  sent(to: Recipient | undefined, datagrams: number, bytes: number): void;
  /** Returns whether the socket can still be used: the callee may have closed it. */
  notSent(to: Recipient | undefined, datagrams: number, errno: number): boolean;
  /** A message of several datagrams failed, though single ones may succeed: build no more of them. */
  noSegments(): void;
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

/** Messages of one call, each with an address and control data: the kernel ignores either if its length is 0. */
export class MessageMemory {
  readonly headers: PinnedArray;
  readonly vectors: PinnedArray;
  readonly names: PinnedArray;
  readonly controls: PinnedArray;

  constructor(ffi: FfiModule, count: number, controlBytes: number) {
    this.headers = new PinnedArray(ffi, count, k.MMSGHDR_BYTES);
    this.vectors = new PinnedArray(ffi, count, k.IOVEC_BYTES);
    this.names = new PinnedArray(ffi, count, k.SOCKADDR_BYTES);
    this.controls = new PinnedArray(ffi, count, controlBytes);
    const { view } = this.headers;
    for (let index = 0; index < count; index += 1) {
      const header = index * k.MMSGHDR_BYTES;
      view.setBigUint64(header, this.names.addressAt(index), true);
      view.setBigUint64(header + 16, this.vectors.addressAt(index), true);
      view.setBigUint64(header + 24, 1n, true);
      view.setBigUint64(header + 32, this.controls.addressAt(index), true);
    }
  }
}

/**
 * Datagrams of any size, in slots. One call receives many of them, whose addresses are known until their slot is reused.
 *
 * They are sent with few calls: those of one size and one peer as one message, which the kernel or the network card
 * splits again, and all messages of one socket together. `add` queues, `flush` sends; neither allocates.
 */
export class Datagrams {
  readonly count: number;
  readonly #c: Library['c'];
  readonly #incoming: MessageMemory;
  readonly #data: PinnedArray;
  readonly #nameText: Buffer;
  readonly #controlText: Buffer;
  readonly #lengths: Uint32Array;
  readonly #outgoing: MessageMemory;
  readonly #vectorWords: BigUint64Array;
  readonly #messages: readonly Message[];
  #size = 0;
  /** Of all messages. */
  #vectors = 0;

  constructor({ ffi, c }: Library, count: number) {
    this.count = count;
    this.#c = c;
    this.#incoming = new MessageMemory(ffi, count, CONTROL_BYTES);
    this.#data = new PinnedArray(ffi, count, STRIDE);
    const { names, controls, vectors } = this.#incoming;
    this.#nameText = Buffer.from(names.bytes.buffer);
    this.#controlText = Buffer.from(controls.bytes.buffer);
    this.#lengths = new Uint32Array(count);
    this.#outgoing = new MessageMemory(ffi, count, SENT_CONTROL_BYTES);
    this.#vectorWords = new BigUint64Array(this.#outgoing.vectors.bytes.buffer);
    const none = { owner: undefined, to: undefined, vector: 0, count: 0, bytes: 0 };
    this.#messages = Array.from({ length: count }, () => Object.assign({}, none));
    for (let index = 0; index < count; index += 1) {
      const vector = index * k.IOVEC_BYTES;
      vectors.view.setBigUint64(vector, this.#data.addressAt(index), true);
      vectors.view.setUint32(vector + 8, PAYLOAD, true);
    }
  }

  /** Receives up to `most` datagrams into the slots from `first` on. How many, or a negative error number. */
  receive(fd: number, first: number, most: number): number {
    const { headers } = this.#incoming;
    const { view } = headers;
    // The kernel overwrites both with the lengths it has used.
    for (let index = first; index < first + most; index += 1) {
      const header = index * k.MMSGHDR_BYTES;
      view.setUint32(header + 8, k.SOCKADDR_BYTES, true);
      view.setUint32(header + 40, CONTROL_BYTES, true);
    }
    const count = this.#c.recvmmsg(fd, headers.addressAt(first), most, 0, 0n);
    if (count < 0) return count;
    for (let index = first; index < first + count; index += 1) {
      this.#lengths[index] = view.getUint32(index * k.MMSGHDR_BYTES + k.MMSGHDR_LENGTH, true);
    }
    return count;
  }

  /** Receives one datagram without its addresses: half the cost of `receive`. 1, or a negative error number. */
  read(fd: number, slot: number): number {
    const length = this.#c.read(fd, this.#data.addressAt(slot), PAYLOAD);
    if (length < 0) return length;
    this.#lengths[slot] = length;
    return 1;
  }

  write(fd: number, slot: number): number {
    return this.#c.write(fd, this.#data.addressAt(slot), this.length(slot));
  }

  length(slot: number): number {
    return this.#lengths[slot] ?? 0;
  }

  /** The sender; undefined when it has no port, so that it cannot be answered. */
  sender(slot: number): PeerKey | undefined {
    const { view } = this.#incoming.names;
    const at = slot * k.SOCKADDR_BYTES;
    const port = view.getUint16(at + 2);
    if (port === 0) return undefined;
    if (view.getUint16(at, true) === k.AF_INET) return view.getUint32(at + 4) * 65_536 + port;
    return this.#nameText.toString('latin1', at + 2, at + k.SOCKADDR_IN6_BYTES);
  }

  senderAddress(slot: number): k.SocketAddress {
    const { view } = this.#incoming.names;
    return k.readSockaddr(view, slot * k.SOCKADDR_BYTES) ?? { address: '', port: 0 };
  }

  /** A key of the address that it was sent to, on a socket with IP_PKTINFO; undefined: not known. */
  destination(slot: number): PeerKey | undefined {
    const at = slot * CONTROL_BYTES;
    const { headers, controls } = this.#incoming;
    const { view } = controls;
    const length = headers.view.getUint32(slot * k.MMSGHDR_BYTES + 40, true);
    if (length < k.CMSGHDR_BYTES) return undefined;
    const level = view.getInt32(at + 8, true);
    const type = view.getInt32(at + 12, true);
    const data = at + k.CMSGHDR_BYTES;
    // `spec_dst`: our destination address, also of a multicast.
    if (level === k.IPPROTO_IP && type === k.IP_PKTINFO) return view.getUint32(data + 4);
    if (level !== k.IPPROTO_IPV6 || type !== k.IPV6_PKTINFO) return undefined;
    return this.#controlText.toString('latin1', data, data + k.PKTINFO_BYTES[6]);
  }

  /** The control message that makes an answer leave from the address that the datagram was sent to. */
  answerControl(slot: number): Uint8Array {
    const at = slot * CONTROL_BYTES;
    const { controls } = this.#incoming;
    const isFour = controls.view.getInt32(at + 8, true) === k.IPPROTO_IP;
    const bytes = controls.bytes.slice(at, at + controlSpace(k.PKTINFO_BYTES[isFour ? 4 : 6]));
    const view = new DataView(bytes.buffer);
    if (isFour) {
      // Any interface that the route chooses.
      view.setInt32(k.CMSGHDR_BYTES, 0, true);
      view.setUint32(k.CMSGHDR_BYTES + 8, 0);
    } else if ((view.getUint16(k.CMSGHDR_BYTES) & 0xffc0) !== 0xfe80) {
      view.setInt32(k.CMSGHDR_BYTES + 16, 0, true);
    }
    return bytes;
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
      message.vector = this.#vectors;
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
    let usable = fd;
    for (let next = 0; next < this.#size;) {
      const sent: number = this.#send(usable, next);
      for (let index = next; index < next + sent; index += 1) {
        const message = this.#messages[index];
        message?.owner?.sent(message.to, message.count, message.bytes);
      }
      next += Math.max(0, sent);
      if (sent >= 0) continue;
      // A call stops at the first message that fails, and reports why only when that is its first one.
      usable = this.#notSent(next, usable, -sent);
      next += 1;
    }
    this.#size = 0;
    this.#vectors = 0;
  }

  /** Sends the messages from `first` on. How many were taken, at least one; or a negative error number. */
  #send(fd: number, first: number): number {
    const address = this.#outgoing.headers.addressAt(first);
    if (first + 1 < this.#size) return this.#c.sendmmsg(fd, address, this.#size - first, 0);
    // An `mmsghdr` begins with a `msghdr`, and the call for one message costs less.
    const result = this.#c.sendmsg(fd, address, 0);
    return result < 0 ? result : 1;
  }

  /** Returns the descriptor, or an invalid one if the owner has closed it. */
  #notSent(index: number, fd: number, errno: number): number {
    const { owner, to, vector = 0, count = 0 } = this.#messages[index] ?? {};
    if (owner === undefined) return fd;
    if (count === 1 || isLasting(errno)) return owner.notSent(to, count, errno) ? fd : -1;
    owner.noSegments();
    let usable = fd;
    for (let each = vector; each < vector + count; each += 1) {
      this.#writeHeader(index, each, 1, to);
      const sent = this.#c.sendmsg(usable, this.#outgoing.headers.addressAt(index), 0);
      if (sent >= 0) owner.sent(to, 1, this.#vectorLength(each));
      else if (!owner.notSent(to, 1, -sent)) usable = -1;
    }
    return usable;
  }

  #addVector(slot: number): number {
    const index = this.#vectors;
    this.#vectors += 1;
    const length = this.length(slot);
    this.#vectorWords[index * 2] = this.#data.addressAt(slot);
    this.#outgoing.vectors.view.setUint32(index * k.IOVEC_BYTES + 8, length, true);
    return length;
  }

  #vectorLength(vector: number): number {
    return this.#outgoing.vectors.view.getUint32(vector * k.IOVEC_BYTES + 8, true);
  }

  #writeHeader(message: number, vector: number, vectors: number, to: Recipient | undefined): void {
    const { headers, names } = this.#outgoing;
    const at = message * k.MMSGHDR_BYTES;
    const name = to === undefined ? 0 : writePeer(names, message * k.SOCKADDR_BYTES, to.key);
    const segment = vectors === 1 ? 0 : this.#vectorLength(vector);
    headers.view.setUint32(at + 8, name, true);
    headers.view.setBigUint64(at + 16, this.#outgoing.vectors.addressAt(vector), true);
    headers.view.setUint32(at + 24, vectors, true);
    headers.view.setUint32(at + 40, this.#writeControl(message, to?.source, segment), true);
  }

  /** Returns the size of the message's control messages. */
  #writeControl(message: number, source: Uint8Array | undefined, segment: number): number {
    const at = message * SENT_CONTROL_BYTES;
    const { bytes, view } = this.#outgoing.controls;
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
    const size = this.length(slots[from] ?? 0);
    let bytes = size;
    let count = 1;
    while (from + count < end && count < MAX_SEGMENTS) {
      const next = this.length(slots[from + count] ?? 0);
      bytes += next;
      if (next > size || next === 0 || bytes > MAX_SEGMENTED_BYTES) break;
      count += 1;
      if (next < size) break;
    }
    return count;
  }
}

/** Size of a control message with so much data. */
function controlSpace(dataBytes: number): number {
  return k.CMSGHDR_BYTES + Math.ceil(dataBytes / 8) * 8;
}

/** Errors that single datagrams would have, too. */
function isLasting(errno: number): boolean {
  return isFull(errno) || errno === k.ECONNREFUSED || errno === k.EBADF;
}

/** The kernel takes no more for now. */
export function isFull(errno: number): boolean {
  return errno === k.EAGAIN || errno === k.ENOBUFS;
}
