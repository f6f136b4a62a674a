import { readSockaddr, type SocketAddress } from './address.ts';
import {
  AF_INET,
  IP_PKTINFO,
  IPPROTO_IP,
  IPPROTO_IPV6,
  IPV6_PKTINFO,
  MSG_TRUNC,
  CMSGHDR_BYTES,
  IOVEC_BYTES,
  MMSGHDR_BYTES,
  MMSGHDR_LENGTH,
  PKTINFO_BYTES,
  SOCKADDR_IN6_BYTES,
  SOCKADDR_BYTES,
} from './abi.ts';
import type { Library } from './library.ts';
import { addressOf, Pinned } from './memory.ts';

/** The largest payload of any UDP datagram. */
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

/**
 * Memory for a number of datagrams of any size, which one call receives.
 *
 * The source and destination address of a datagram are known until its slot is reused.
 */
export class DatagramSlots {
  readonly count: number;
  readonly #c: Library['c'];
  readonly #headers: Pinned;
  readonly #vectors: Pinned;
  readonly #names: Pinned;
  readonly #controls: Pinned;
  readonly #data: Pinned;
  readonly #nameText: Buffer;
  readonly #controlText: Buffer;
  readonly #headerAddresses: readonly bigint[];
  readonly #dataAddresses: readonly bigint[];
  readonly #lengths: Uint32Array;
  /** Headers from the first of these up to the other have been written by the kernel. */
  #usedFrom = 0;
  #usedEnd = 0;

  constructor(lib: Library, count: number) {
    this.count = count;
    this.#c = lib.c;
    const alloc = (bytes: number): Pinned => Pinned.alloc(lib.ffi, bytes * count);
    this.#headers = alloc(MMSGHDR_BYTES);
    this.#vectors = alloc(IOVEC_BYTES);
    this.#names = alloc(SOCKADDR_BYTES);
    this.#controls = alloc(CONTROL_BYTES);
    this.#data = alloc(STRIDE);
    this.#nameText = Buffer.from(this.#names.bytes.buffer);
    this.#controlText = Buffer.from(this.#controls.bytes.buffer);
    this.#lengths = new Uint32Array(count);
    const each = (memory: Pinned, bytes: number): bigint[] =>
      Array.from({ length: count }, (_, index) => addressOf(memory, index * bytes));
    this.#headerAddresses = each(this.#headers, MMSGHDR_BYTES);
    this.#dataAddresses = each(this.#data, STRIDE);
    const names = each(this.#names, SOCKADDR_BYTES);
    const vectors = each(this.#vectors, IOVEC_BYTES);
    const controls = each(this.#controls, CONTROL_BYTES);
    for (let index = 0; index < count; index += 1) {
      const header = index * MMSGHDR_BYTES;
      const { view } = this.#headers;
      view.setBigUint64(header, names[index] ?? 0n, true);
      view.setBigUint64(header + 16, vectors[index] ?? 0n, true);
      view.setBigUint64(header + 24, 1n, true);
      view.setBigUint64(header + 32, controls[index] ?? 0n, true);
      const vector = index * IOVEC_BYTES;
      this.#vectors.view.setBigUint64(vector, this.#dataAddresses[index] ?? 0n, true);
      this.#vectors.view.setUint32(vector + 8, PAYLOAD, true);
    }
    this.#usedEnd = count;
  }

  /** Receives up to `most` datagrams into the slots from `first` on. How many, or a negative error number. */
  receive(fd: number, first: number, most: number): number {
    const { view } = this.#headers;
    // The kernel overwrites both with the lengths it has used.
    for (let index = this.#usedFrom; index < this.#usedEnd; index += 1) {
      const header = index * MMSGHDR_BYTES;
      view.setUint32(header + 8, SOCKADDR_BYTES, true);
      view.setUint32(header + 40, CONTROL_BYTES, true);
    }
    this.#usedEnd = 0;
    const address = this.#headerAddresses[first] ?? 0n;
    const count = this.#c.recvmmsg(fd, address, most, 0, 0n);
    if (count < 0) return count;
    this.#usedFrom = first;
    this.#usedEnd = first + count;
    for (let index = first; index < first + count; index += 1) {
      this.#lengths[index] = view.getUint32(index * MMSGHDR_BYTES + MMSGHDR_LENGTH, true);
    }
    return count;
  }

  /**
   * Receives one datagram from a connected socket into a slot, without its sender and destination:
   * half the cost of `receive`. 1, or a negative error number.
   */
  read(fd: number, slot: number): number {
    const length = this.#c.read(fd, this.#dataAddresses[slot] ?? 0n, PAYLOAD);
    if (length < 0) return length;
    this.#lengths[slot] = length;
    return 1;
  }

  /** Sends a datagram through a connected socket. Its length, or a negative error number. */
  write(fd: number, slot: number): number {
    return this.#c.write(fd, this.#dataAddresses[slot] ?? 0n, this.length(slot));
  }

  length(slot: number): number {
    return this.#lengths[slot] ?? 0;
  }

  /** Whether the datagram was truncated because it exceeded the largest size. */
  isCut(slot: number): boolean {
    return (this.#headers.view.getUint32(slot * MMSGHDR_BYTES + 48, true) & MSG_TRUNC) !== 0;
  }

  /** The sender; undefined when it has no port, so that it cannot be answered. */
  sender(slot: number): PeerKey | undefined {
    const { view } = this.#names;
    const at = slot * SOCKADDR_BYTES;
    const port = view.getUint16(at + 2);
    if (port === 0) return undefined;
    if (view.getUint16(at, true) === AF_INET) return view.getUint32(at + 4) * 65_536 + port;
    return this.#nameText.toString('latin1', at + 2, at + SOCKADDR_IN6_BYTES);
  }

  senderAddress(slot: number): SocketAddress {
    return readSockaddr(this.#names.view, slot * SOCKADDR_BYTES) ?? { address: '', port: 0 };
  }

  /** Memory and offset of the sender's address, to be copied. */
  get names(): Pinned {
    return this.#names;
  }

  nameOffset(slot: number): number {
    return slot * SOCKADDR_BYTES;
  }

  /**
   * The address that it was sent to, on a socket with IP_PKTINFO: a key, equal for
   * equal addresses; undefined when it is not known.
   */
  destination(slot: number): PeerKey | undefined {
    const at = slot * CONTROL_BYTES;
    const { view } = this.#controls;
    if (this.#headers.view.getUint32(slot * MMSGHDR_BYTES + 40, true) < CMSGHDR_BYTES) {
      return undefined;
    }
    const level = view.getInt32(at + 8, true);
    const type = view.getInt32(at + 12, true);
    const data = at + CMSGHDR_BYTES;
    // `spec_dst`: our destination address, also of a multicast.
    if (level === IPPROTO_IP && type === IP_PKTINFO) return view.getUint32(data + 4);
    if (level !== IPPROTO_IPV6 || type !== IPV6_PKTINFO) return undefined;
    return this.#controlText.toString('latin1', data, data + PKTINFO_BYTES[6]);
  }

  /** The control message that makes an answer leave from the address that the datagram was sent to. */
  answerControl(slot: number): Uint8Array {
    const at = slot * CONTROL_BYTES;
    const isFour = this.#controls.view.getInt32(at + 8, true) === IPPROTO_IP;
    const bytes = this.#controls.bytes.slice(at, at + controlSpace(PKTINFO_BYTES[isFour ? 4 : 6]));
    const view = new DataView(bytes.buffer);
    if (isFour) {
      // Any interface that the route chooses.
      view.setInt32(CMSGHDR_BYTES, 0, true);
      view.setUint32(CMSGHDR_BYTES + 8, 0);
    } else if ((view.getUint16(CMSGHDR_BYTES) & 0xffc0) !== 0xfe80) {
      view.setInt32(CMSGHDR_BYTES + 16, 0, true);
    }
    return bytes;
  }

  /** For this folder only. */
  static dataAddress(slots: DatagramSlots, slot: number): bigint {
    return slots.#dataAddresses[slot] ?? 0n;
  }
}

/** Size of a control message with so much data. */
export function controlSpace(dataBytes: number): number {
  return CMSGHDR_BYTES + Math.ceil(dataBytes / 8) * 8;
}
