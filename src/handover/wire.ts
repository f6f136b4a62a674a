import { closeSync } from 'node:fs';
import type { Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { KpngError } from '../errors.ts';
import type { InheritedSocket } from '../util/inherited.ts';
import * as k from '../proxysocket/linux/sys/abi.ts';
import { MessageMemory } from '../proxysocket/linux/sys/datagrams.ts';
import { addressOf, Pinned } from '../proxysocket/linux/sys/memory.ts';
import type { Sys } from '../proxysocket/linux/sys/sys.ts';
import { ByteBuffer } from '../util/byte-buffer.ts';
import { inodeOf } from '../util/socket-file.ts';

/** Time limit for each side, from the connection until the new process has the sockets. Milliseconds. */
export const EXCHANGE_LIMIT_MS = 10_000;

/** Maximum length of a line: 10,000 listeners take about 2 MB. */
export const MAX_LINE_BYTES = 64 << 20;

/** Between two looks whether the other process has sent something. Milliseconds. */
const PAUSE_MS = 2;
const LONGER_PAUSE_MS = 20;
const LINE_FEED = 10;

/** Maximum number of descriptors in one message (SCM_MAX_FD). */
export const MAX_DESCRIPTORS = 253;
const BUFFER_BYTES = 64 * 1024;
const CONTROL_BYTES = k.CMSGHDR_BYTES + MAX_DESCRIPTORS * 4 + 4;

/**
 * One end of a handover. Methods reject with the system's error, and with KPNG_HANDOVER_FAILED on a timeout, or if the
 * peer has ended or violates the protocol.
 */
export class Wire {
  readonly #sys: Sys;
  readonly #socket: object;
  readonly #message: MessageMemory;
  readonly #buffer: Pinned;
  #deadline = performance.now() + EXCHANGE_LIMIT_MS;
  #pauseMs = PAUSE_MS;
  /** Received so far; for the caller to close. */
  readonly descriptors: number[] = [];

  /** On a connection that Node does not read. */
  constructor(sys: Sys, socket: Socket) {
    this.#sys = sys;
    this.#socket = socket;
    this.#message = new MessageMemory(sys.ffi, 1, CONTROL_BYTES);
    this.#buffer = new Pinned(sys.ffi, BUFFER_BYTES);
    this.#message.vectors.view.setBigUint64(0, this.#buffer.address, true);
  }

  /** Node offers no other way to get it. Throws once the socket is closed, as another one may have its number. */
  get fd(): number {
    const { _handle: handle } = this.#socket as { readonly _handle?: { readonly fd?: number } };
    if (handle?.fd === undefined || handle.fd < 0) throw new Error('the connection is closed');
    return handle.fd;
  }

  /** Ends the time limit. */
  waitLonger(): void {
    this.#deadline = Infinity;
    this.#pauseMs = LONGER_PAUSE_MS;
  }

  async say(message: unknown): Promise<void> {
    let rest: Uint8Array = Buffer.from(`${JSON.stringify(message)}\n`);
    while (rest.length > 0) rest = rest.subarray(await this.#send(rest, []));
  }

  /**
   * Sends descriptors, each with a dummy byte. A descriptor that another thread has closed is replaced by that of
   * this connection: the receiver expects a fixed number, and keeps listening sockets only.
   */
  async sendDescriptors(descriptors: readonly number[]): Promise<void> {
    for (let start = 0; start < descriptors.length; start += MAX_DESCRIPTORS) {
      await this.#send(Buffer.from(' '), descriptors.slice(start, start + MAX_DESCRIPTORS));
    }
  }

  /** `sockets`: whether the other process may send some; if not, they are closed. */
  async readLine(sockets: 'with sockets' | 'no sockets' = 'with sockets'): Promise<string> {
    const line = new ByteBuffer();
    for (;;) {
      const bytes = await this.#read();
      if (sockets === 'no sockets' && this.descriptors.length > 0) {
        for (const fd of this.descriptors.splice(0)) closeSync(fd);
        throw failure('the other process sent sockets');
      }
      const end = bytes.indexOf(LINE_FEED);
      line.append(end === -1 ? bytes : bytes.subarray(0, end));
      if (line.length > MAX_LINE_BYTES)
        throw failure('the other process sent a line that is too long');
      if (end !== -1) return line.take().toString();
    }
  }

  async receiveDescriptors(count: number): Promise<readonly number[]> {
    while (this.descriptors.length < count) await this.#read();
    if (this.descriptors.length > count) throw failure('the other process sent too many sockets');
    return this.descriptors;
  }

  async #send(bytes: Uint8Array, descriptors: readonly number[]): Promise<number> {
    for (;;) {
      const sent = this.send(bytes, descriptors);
      if (sent >= 0) return sent;
      if (sent === -k.EBADF) {
        const open = descriptors.map((fd) => (inodeOf(fd) === undefined ? this.fd : fd));
        return this.#send(bytes, open);
      }
      // The kernel limits the number of descriptors in flight.
      if (sent !== -k.EAGAIN && sent !== -k.ETOOMANYREFS) throw k.systemError(-sent, 'sendmsg');
      await this.#pause();
    }
  }

  async #read(): Promise<Uint8Array> {
    for (;;) {
      const received = this.receive();
      if (typeof received !== 'number') {
        if (received.length === 0) throw failure('the other process has ended');
        this.#checkTime();
        return received;
      }
      if (received !== -k.EAGAIN) throw k.systemError(-received, 'recvmsg');
      await this.#pause();
    }
  }

  async #pause(): Promise<void> {
    this.#checkTime();
    await delay(this.#pauseMs);
  }

  #checkTime(): void {
    if (performance.now() > this.#deadline) throw failure('the other process timed out');
  }

  /** Sends up to 64 KiB, with the descriptors attached to the first byte. Returns the number of bytes sent. */
  send(bytes: Uint8Array, descriptors: readonly number[] = []): number {
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
    return this.#sys.c.sendmsg(this.fd, header, k.MSG_NOSIGNAL);
  }

  /** Reads once, and keeps the descriptors that come with the bytes, closed on exec. A negative errno: nothing read. */
  receive(): Uint8Array | number {
    const header = this.#describe(BUFFER_BYTES, CONTROL_BYTES);
    const count = this.#sys.c.recvmsg(this.fd, header, k.MSG_CMSG_CLOEXEC);
    if (count < 0) return count;
    const { headers, controls } = this.#message;
    const hasDescriptors = headers.view.getUint32(40, true) >= k.CMSGHDR_BYTES;
    const end = hasDescriptors ? controls.view.getUint32(0, true) : 0;
    for (let at = k.CMSGHDR_BYTES; at < end; at += 4) {
      this.descriptors.push(controls.view.getInt32(at, true));
    }
    return this.#buffer.bytes.slice(0, count);
  }

  /** The user of the other process. */
  peerUser(): number | undefined {
    const { view, address } = this.#buffer;
    view.setUint32(16, 12, true);
    const length = addressOf(this.#buffer, 16);
    const result = this.#sys.c.getsockopt(this.fd, k.SOL_SOCKET, k.SO_PEERCRED, address, length);
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

function failure(message: string): KpngError {
  return new KpngError('KPNG_HANDOVER_FAILED', message);
}
