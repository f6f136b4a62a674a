import { KpngError } from '../errors.ts';
import type { InheritedSocket } from '../proxysocket/core/inherited.ts';
import * as k from '../proxysocket/linux/sys/abi.ts';
import { MessageMemory } from '../proxysocket/linux/sys/datagrams.ts';
import { addressOf, Pinned } from '../proxysocket/linux/sys/memory.ts';
import type { Sys } from '../proxysocket/linux/sys/sys.ts';
import { ByteBuffer } from '../util/byte-buffer.ts';
import { inodeOf } from '../util/socket-file.ts';
import { EXCHANGE_LIMIT_MS, MAX_LINE_BYTES } from './protocol.ts';

const PAUSE_MS = 2;
const LINE_FEED = 10;

/**
 * One end of a handover, in a thread of its own because it blocks. Methods throw the system's error, and
 * KPNG_HANDOVER_FAILED on a timeout, or if the peer has ended or violates the protocol.
 */
export class Wire {
  readonly fd: number;
  readonly #rights: Pick<Rights, 'send' | 'receive'>;
  readonly #deadline = performance.now() + EXCHANGE_LIMIT_MS;
  readonly #descriptors: number[] = [];

  constructor(rights: Pick<Rights, 'send' | 'receive'>, fd: number) {
    this.#rights = rights;
    this.fd = fd;
  }

  say(message: unknown): void {
    let rest: Uint8Array = Buffer.from(`${JSON.stringify(message)}\n`);
    while (rest.length > 0) rest = rest.subarray(this.#send(rest, []));
  }

  /**
   * Sends descriptors, each with a dummy byte. A descriptor that another thread has closed is replaced by that of
   * this connection: the receiver expects a fixed number, and keeps listening sockets only.
   */
  sendDescriptors(descriptors: readonly number[]): void {
    for (let start = 0; start < descriptors.length; start += MAX_DESCRIPTORS) {
      this.#send(Buffer.from(' '), descriptors.slice(start, start + MAX_DESCRIPTORS));
    }
  }

  readLine(): string {
    const line = new ByteBuffer();
    for (;;) {
      const bytes = this.#read();
      const end = bytes.indexOf(LINE_FEED);
      line.append(end === -1 ? bytes : bytes.subarray(0, end));
      if (line.length > MAX_LINE_BYTES)
        throw failure('the other process sent a line that is too long');
      if (end !== -1) return line.take().toString();
    }
  }

  /** Waits for a fixed number of descriptors, which the caller has to close. */
  receiveDescriptors(count: number): readonly number[] {
    while (this.#descriptors.length < count) this.#read();
    if (this.#descriptors.length > count) throw failure('the other process sent too many sockets');
    return this.#descriptors;
  }

  /** Descriptors received so far, for a reader that stops early. */
  get descriptors(): readonly number[] {
    return this.#descriptors;
  }

  #send(bytes: Uint8Array, descriptors: readonly number[]): number {
    for (;;) {
      const sent = this.#rights.send(this.fd, bytes, descriptors);
      if (sent >= 0) return sent;
      if (sent === -k.EBADF && inodeOf(this.fd) !== undefined) {
        const open = descriptors.map((fd) => (inodeOf(fd) === undefined ? this.fd : fd));
        return this.#send(bytes, open);
      }
      // The kernel limits the number of descriptors in flight.
      if (sent !== -k.EAGAIN && sent !== -k.ETOOMANYREFS) throw k.systemError(-sent, 'sendmsg');
      this.#pause();
    }
  }

  #read(): Uint8Array {
    for (;;) {
      const received = this.#rights.receive(this.fd);
      if (typeof received !== 'number') {
        if (received.bytes.length === 0) throw failure('the other process has ended');
        this.#checkTime();
        this.#descriptors.push(...received.descriptors);
        return received.bytes;
      }
      if (received !== -k.EAGAIN) throw k.systemError(-received, 'recvmsg');
      this.#pause();
    }
  }

  #pause(): void {
    this.#checkTime();
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, PAUSE_MS);
  }

  #checkTime(): void {
    if (performance.now() > this.#deadline) throw failure('the other process timed out');
  }
}

function failure(message: string): KpngError {
  return new KpngError('KPNG_HANDOVER_FAILED', message);
}

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

/** Passes descriptors over unix sockets. Nothing blocks; calls return the C function's result or a negative errno. */
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
    // A read leaves the length of the peer's name here, for which the next one would find no room.
    headers.view.setUint32(8, 0, true);
    headers.view.setUint32(40, controlBytes, true);
    headers.view.setUint32(48, 0, true);
    return headers.address;
  }
}
