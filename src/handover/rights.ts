import type { InheritedSocket } from '../proxysocket/core/inherited.ts';
import * as k from '../proxysocket/linux/sys/abi.ts';
import { MessageMemory } from '../proxysocket/linux/sys/datagrams.ts';
import { addressOf, Pinned } from '../proxysocket/linux/sys/memory.ts';
import type { Sys } from '../proxysocket/linux/sys/sys.ts';

/** Maximum number of descriptors in one message (SCM_MAX_FD). */
export const MAX_DESCRIPTORS = 253;
const BUFFER_BYTES = 64 * 1024;
const CONTROL_BYTES = k.CMSGHDR_BYTES + MAX_DESCRIPTORS * 4 + 4;

/** The result of a read: bytes and descriptors, both in the order in which they were sent. */
interface Received {
  readonly bytes: Uint8Array;
  /** Owned by the caller; closed on exec. */
  readonly descriptors: readonly number[];
}

/**
 * Passes descriptors between processes over unix sockets. Nothing blocks; every call returns the result of the C
 * function, or a negative errno. For use in one thread.
 */
export class Rights {
  readonly #sys: Sys;
  readonly #message: MessageMemory;
  readonly #buffer: Pinned;

  constructor(sys: Sys) {
    this.#sys = sys;
    this.#message = new MessageMemory(sys.ffi, 1, CONTROL_BYTES);
    this.#buffer = new Pinned(sys.ffi, BUFFER_BYTES);
    this.#message.vectors.view.setBigUint64(0, this.#buffer.address, true);
  }

  connect(path: string): number {
    const { c } = this.#sys;
    const text = Buffer.from(`${path}\0`);
    this.#buffer.view.setUint16(0, k.AF_UNIX, true);
    this.#buffer.bytes.set(text, 2);
    const fd = c.socket(k.AF_UNIX, k.SOCK_STREAM | k.SOCK_NONBLOCK | k.SOCK_CLOEXEC, 0);
    if (fd < 0) return fd;
    const result = c.connect(fd, this.#buffer.address, 2 + text.length);
    if (result === 0) return fd;
    c.close(fd);
    return result;
  }

  /** Sends up to 64 KiB, with the descriptors attached to the first byte. Returns the number of bytes sent. */
  send(fd: number, bytes: Uint8Array, descriptors: readonly number[] = []): number {
    const part = bytes.subarray(0, BUFFER_BYTES);
    this.#buffer.bytes.set(part);
    const { view } = this.#message.controls;
    const controlBytes = k.CMSGHDR_BYTES + descriptors.length * 4;
    view.setBigUint64(0, BigInt(controlBytes), true);
    view.setInt32(8, k.SOL_SOCKET, true);
    view.setInt32(12, k.SCM_RIGHTS, true);
    for (const [index, each] of descriptors.entries()) {
      view.setInt32(k.CMSGHDR_BYTES + index * 4, each, true);
    }
    const header = this.#describe(part.length, descriptors.length === 0 ? 0 : controlBytes);
    return this.#sys.c.sendmsg(fd, header, k.MSG_NOSIGNAL);
  }

  receive(fd: number): Received | number {
    const header = this.#describe(BUFFER_BYTES, CONTROL_BYTES);
    const count = this.#sys.c.recvmsg(fd, header, k.MSG_CMSG_CLOEXEC);
    if (count < 0) return count;
    const { headers, controls } = this.#message;
    const hasDescriptors = headers.view.getUint32(40, true) >= k.CMSGHDR_BYTES;
    const length = hasDescriptors ? controls.view.getUint32(0, true) : k.CMSGHDR_BYTES;
    const descriptors = Array.from({ length: (length - k.CMSGHDR_BYTES) / 4 }, (_, index) =>
      controls.view.getInt32(k.CMSGHDR_BYTES + index * 4, true),
    );
    return { bytes: this.#buffer.bytes.slice(0, count), descriptors };
  }

  /** The user of the peer of a unix socket; undefined for anything else. */
  peerUser(fd: number): number | undefined {
    const { view, address } = this.#buffer;
    view.setUint32(16, 12, true);
    const length = addressOf(this.#buffer, 16);
    const result = this.#sys.c.getsockopt(fd, k.SOL_SOCKET, k.SO_PEERCRED, address, length);
    // The process id comes first.
    return result < 0 ? undefined : view.getUint32(4, true);
  }

  /** Where a descriptor accepts clients; undefined for files, connections and unbound sockets. */
  listeningSocket(fd: number): InheritedSocket | undefined {
    const sys = this.#sys;
    const type = sys.getOption(fd, k.SOL_SOCKET, k.SO_TYPE);
    const isStream = type === k.SOCK_STREAM;
    const isListening = isStream
      ? sys.getOption(fd, k.SOL_SOCKET, k.SO_ACCEPTCONN) === 1
      : type === k.SOCK_DGRAM && sys.remoteAddress(fd) === undefined;
    const local = isListening ? sys.localAddress(fd) : undefined;
    if (local === undefined || local.port === 0) return undefined;
    return { protocol: isStream ? 'TCP' : 'UDP', ...local, fd };
  }

  /** Prepares the message for so many bytes, and returns its address. */
  #describe(bytes: number, controlBytes: number): bigint {
    const { headers, vectors } = this.#message;
    vectors.view.setUint32(8, bytes, true);
    headers.view.setUint32(40, controlBytes, true);
    headers.view.setUint32(48, 0, true);
    return headers.address;
  }
}
