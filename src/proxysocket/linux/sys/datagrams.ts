import { readSockaddr, type SocketAddress } from './address.ts';
import * as k from './abi.ts';
import type { FfiModule, Library } from './library.ts';
import { PinnedArray, type Pinned } from './memory.ts';

const PAYLOAD = 65_535;
/**
 * From one slot to the next: an odd number of cache lines more than 64 KiB. The beginnings of slots that
 * are exactly 64 KiB apart would all fall on the same few lines of the cache.
 */
const STRIDE = PAYLOAD + 1 + 64;
/** Room for the address that a datagram was sent to. */
const CONTROL_BYTES = 64;

/** What identifies a peer: a number for IPv4, a text for IPv6. Equal for equal addresses and ports. */
export type PeerKey = number | string;

export function writePeer({ view }: Pinned, offset: number, peer: PeerKey): number {
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

/** Memory for datagrams of any size, which one call receives. Their addresses are known until their slot is reused. */
export class DatagramSlots {
  readonly count: number;
  readonly #c: Library['c'];
  readonly #memory: MessageMemory;
  readonly #data: PinnedArray;
  readonly #nameText: Buffer;
  readonly #controlText: Buffer;
  readonly #lengths: Uint32Array;
  /** Headers from the first of these up to the other have been written by the kernel. */
  #usedFrom = 0;
  #usedEnd: number;

  constructor({ ffi, c }: Library, count: number) {
    this.count = count;
    this.#c = c;
    this.#memory = new MessageMemory(ffi, count, CONTROL_BYTES);
    this.#data = new PinnedArray(ffi, count, STRIDE);
    const { names, controls, vectors } = this.#memory;
    this.#nameText = Buffer.from(names.bytes.buffer);
    this.#controlText = Buffer.from(controls.bytes.buffer);
    this.#lengths = new Uint32Array(count);
    for (let index = 0; index < count; index += 1) {
      const vector = index * k.IOVEC_BYTES;
      vectors.view.setBigUint64(vector, this.#data.addressAt(index), true);
      vectors.view.setUint32(vector + 8, PAYLOAD, true);
    }
    this.#usedEnd = count;
  }

  /** Receives up to `most` datagrams into the slots from `first` on. How many, or a negative error number. */
  receive(fd: number, first: number, most: number): number {
    const { headers } = this.#memory;
    const { view } = headers;
    // The kernel overwrites both with the lengths it has used.
    for (let index = this.#usedFrom; index < this.#usedEnd; index += 1) {
      const header = index * k.MMSGHDR_BYTES;
      view.setUint32(header + 8, k.SOCKADDR_BYTES, true);
      view.setUint32(header + 40, CONTROL_BYTES, true);
    }
    this.#usedEnd = 0;
    const count = this.#c.recvmmsg(fd, headers.addressAt(first), most, 0, 0n);
    if (count < 0) return count;
    this.#usedFrom = first;
    this.#usedEnd = first + count;
    for (let index = first; index < first + count; index += 1) {
      this.#lengths[index] = view.getUint32(index * k.MMSGHDR_BYTES + k.MMSGHDR_LENGTH, true);
    }
    return count;
  }

  /** Receives one datagram without its addresses: half the cost of `receive`. 1, or a negative error number. */
  read(fd: number, slot: number): number {
    const length = this.#c.read(fd, this.dataAddress(slot), PAYLOAD);
    if (length < 0) return length;
    this.#lengths[slot] = length;
    return 1;
  }

  write(fd: number, slot: number): number {
    return this.#c.write(fd, this.dataAddress(slot), this.length(slot));
  }

  length(slot: number): number {
    return this.#lengths[slot] ?? 0;
  }

  /** Whether the datagram was truncated because it exceeded the largest size. */
  isCut(slot: number): boolean {
    const flags = this.#memory.headers.view.getUint32(slot * k.MMSGHDR_BYTES + 48, true);
    return (flags & k.MSG_TRUNC) !== 0;
  }

  /** The sender; undefined when it has no port, so that it cannot be answered. */
  sender(slot: number): PeerKey | undefined {
    const { view } = this.#memory.names;
    const at = slot * k.SOCKADDR_BYTES;
    const port = view.getUint16(at + 2);
    if (port === 0) return undefined;
    if (view.getUint16(at, true) === k.AF_INET) return view.getUint32(at + 4) * 65_536 + port;
    return this.#nameText.toString('latin1', at + 2, at + k.SOCKADDR_IN6_BYTES);
  }

  senderAddress(slot: number): SocketAddress {
    const { view } = this.#memory.names;
    return readSockaddr(view, slot * k.SOCKADDR_BYTES) ?? { address: '', port: 0 };
  }

  /** A key of the address that it was sent to, on a socket with IP_PKTINFO; undefined: not known. */
  destination(slot: number): PeerKey | undefined {
    const at = slot * CONTROL_BYTES;
    const { headers, controls } = this.#memory;
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
    const { controls } = this.#memory;
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

  dataAddress(slot: number): bigint {
    return this.#data.addressAt(slot);
  }
}

/** Size of a control message with so much data. */
export function controlSpace(dataBytes: number): number {
  return k.CMSGHDR_BYTES + Math.ceil(dataBytes / 8) * 8;
}
