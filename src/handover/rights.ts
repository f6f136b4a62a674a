import type { SocketAddress } from '../proxysocket/linux/sys/address.ts';
import * as k from '../proxysocket/linux/sys/abi.ts';
import { DescriptorLedger } from '../proxysocket/linux/sys/ledger.ts';
import { CMSGHDR_BYTES, IOVEC_BYTES, MSGHDR_BYTES } from '../proxysocket/linux/sys/abi.ts';
import { importFfi, openLibrary, type Library } from '../proxysocket/linux/sys/library.ts';
import { addressOf, Pinned } from '../proxysocket/linux/sys/memory.ts';
import { Sockets } from '../proxysocket/linux/sys/sockets.ts';
import { MAX_SOCKET_PATH } from '../util/socket-file.ts';

/** Maximum number of descriptors in one message (SCM_MAX_FD). */
export const MAX_DESCRIPTORS = 253;
const BUFFER_BYTES = 64 * 1024;
const CONTROL_BYTES = CMSGHDR_BYTES + MAX_DESCRIPTORS * 4 + 4;

/** The peer of a unix socket. */
export interface PeerCredentials {
  readonly pid: number;
  readonly uid: number;
}

/** The result of a read: bytes and descriptors, both in the order in which they were sent. */
export interface Received {
  readonly bytes: Uint8Array;
  /** Owned by the caller; closed on exec. */
  readonly descriptors: readonly number[];
}

/** The address at which a socket of this process accepts clients. */
export interface ListeningAddress extends SocketAddress {
  readonly protocol: 'TCP' | 'UDP';
}

/**
 * Passes descriptors between processes over unix sockets. Nothing blocks; every call returns the result of the C
 * function, or a negative errno. For use in one thread.
 */
export class Rights {
  readonly #c: Library['c'];
  readonly #sockets: Sockets;
  readonly #header: Pinned;
  readonly #vector: Pinned;
  readonly #control: Pinned;
  readonly #buffer: Pinned;

  constructor(lib: Library) {
    this.#c = lib.c;
    this.#sockets = new Sockets(lib, DescriptorLedger.create(1));
    this.#header = new Pinned(lib.ffi, MSGHDR_BYTES);
    this.#vector = new Pinned(lib.ffi, IOVEC_BYTES);
    this.#control = new Pinned(lib.ffi, CONTROL_BYTES);
    this.#buffer = new Pinned(lib.ffi, BUFFER_BYTES);
  }

  /** Connects to a unix socket and returns the descriptor. Throws a RangeError if the path is too long. */
  connect(path: string): number {
    const text = Buffer.from(path);
    if (text.length > MAX_SOCKET_PATH) {
      throw new RangeError(`${path} is longer than ${MAX_SOCKET_PATH} bytes`);
    }
    const { view, bytes } = this.#buffer;
    view.setUint16(0, k.AF_UNIX, true);
    bytes.set(text, 2);
    bytes[2 + text.length] = 0;
    const fd = this.#c.socket(k.AF_UNIX, k.SOCK_STREAM | k.SOCK_NONBLOCK | k.SOCK_CLOEXEC, 0);
    if (fd < 0) return fd;
    const result = this.#c.connect(fd, addressOf(this.#buffer), 3 + text.length);
    if (result === 0) return fd;
    this.#c.close(fd);
    return result;
  }

  /** Sends up to 64 KiB, with the descriptors attached to the first byte. Returns the number of bytes sent. */
  send(fd: number, bytes: Uint8Array, descriptors: readonly number[] = []): number {
    const part = bytes.subarray(0, BUFFER_BYTES);
    this.#buffer.bytes.set(part);
    const { view } = this.#control;
    const controlBytes = CMSGHDR_BYTES + descriptors.length * 4;
    view.setBigUint64(0, BigInt(controlBytes), true);
    view.setInt32(8, k.SOL_SOCKET, true);
    view.setInt32(12, k.SCM_RIGHTS, true);
    for (const [index, each] of descriptors.entries()) {
      view.setInt32(CMSGHDR_BYTES + index * 4, each, true);
    }
    this.#describe(part.length, descriptors.length === 0 ? 0 : controlBytes);
    return this.#c.sendmsg(fd, addressOf(this.#header), k.MSG_NOSIGNAL);
  }

  /** The received bytes; empty at the end of the stream. */
  receive(fd: number): Received | number {
    this.#describe(BUFFER_BYTES, CONTROL_BYTES);
    const count = this.#c.recvmsg(fd, addressOf(this.#header), k.MSG_CMSG_CLOEXEC);
    if (count < 0) return count;
    return { bytes: this.#buffer.bytes.slice(0, count), descriptors: this.#takeDescriptors() };
  }

  /** Undefined for anything but a unix socket. */
  peer(fd: number): PeerCredentials | undefined {
    const { view } = this.#buffer;
    view.setUint32(16, 12, true);
    const at = addressOf(this.#buffer);
    const length = addressOf(this.#buffer, 16);
    if (this.#c.getsockopt(fd, k.SOL_SOCKET, k.SO_PEERCRED, at, length) < 0) return undefined;
    return { pid: view.getInt32(0, true), uid: view.getUint32(4, true) };
  }

  /** Undefined for descriptors that accept no clients: files, connections, unbound sockets. */
  listeningAddress(fd: number): ListeningAddress | undefined {
    const sockets = this.#sockets;
    const type = sockets.getOption(fd, k.SOL_SOCKET, k.SO_TYPE);
    const protocol = type === k.SOCK_STREAM ? 'TCP' : 'UDP';
    if (type === k.SOCK_STREAM) {
      if (sockets.getOption(fd, k.SOL_SOCKET, k.SO_ACCEPTCONN) !== 1) return undefined;
    } else if (type !== k.SOCK_DGRAM || sockets.remoteAddress(fd) !== undefined) {
      return undefined;
    }
    const place = sockets.localAddress(fd);
    return place === undefined || place.port === 0 ? undefined : { protocol, ...place };
  }

  close(fd: number): void {
    this.#c.close(fd);
  }

  #describe(bytes: number, controlBytes: number): void {
    const vector = this.#vector.view;
    vector.setBigUint64(0, addressOf(this.#buffer), true);
    vector.setBigUint64(8, BigInt(bytes), true);
    const header = this.#header.view;
    header.setBigUint64(16, addressOf(this.#vector), true);
    header.setBigUint64(24, 1n, true);
    header.setBigUint64(32, controlBytes === 0 ? 0n : addressOf(this.#control), true);
    header.setBigUint64(40, BigInt(controlBytes), true);
    header.setInt32(48, 0, true);
  }

  #takeDescriptors(): number[] {
    if (this.#header.view.getBigUint64(40, true) < BigInt(CMSGHDR_BYTES)) return [];
    const { view } = this.#control;
    const isRights =
      view.getInt32(8, true) === k.SOL_SOCKET && view.getInt32(12, true) === k.SCM_RIGHTS;
    if (!isRights) return [];
    const count = (Number(view.getBigUint64(0, true)) - CMSGHDR_BYTES) / 4;
    return Array.from({ length: count }, (_, index) => {
      return view.getInt32(CMSGHDR_BYTES + index * 4, true);
    });
  }
}

/** Rejects if this Node has no `node:ffi`, or may not use it. */
export async function openRights(): Promise<Rights> {
  return new Rights(openLibrary(await importFfi()));
}
