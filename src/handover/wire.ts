import { KpngError } from '../errors.ts';
import { EAGAIN, EBADF, ETOOMANYREFS, systemError } from '../proxysocket/linux/sys/abi.ts';
import { ByteBuffer } from '../util/byte-buffer.ts';
import { inodeOf } from '../util/inode.ts';
import { EXCHANGE_LIMIT_MS, MAX_LINE_BYTES } from './protocol.ts';
import { MAX_DESCRIPTORS, type Rights } from './rights.ts';

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
      if (sent === -EBADF && inodeOf(this.fd) !== undefined) {
        const open = descriptors.map((fd) => (inodeOf(fd) === undefined ? this.fd : fd));
        return this.#send(bytes, open);
      }
      // The kernel limits the number of descriptors in flight.
      if (sent !== -EAGAIN && sent !== -ETOOMANYREFS) throw systemError(-sent, 'sendmsg');
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
      if (received !== -EAGAIN) throw systemError(-received, 'recvmsg');
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
