import { EventEmitter } from 'node:events';
import type { OnReadOpts } from 'node:net';
import { getSystemErrorName } from 'node:util';
import type { Family } from '../../util/family.ts';
import { resetHandle, type HandleAddress, type TcpHandle } from './handle.ts';
import type { RelaySocket } from './relay-socket.ts';
import type { StreamCalls } from './stream-calls.ts';

type Done = (error?: Error | null) => void;

const NO_ADDRESS: HandleAddress = {};

/** What `shutdown` answers when there is nothing to wait for. */
const SYNCHRONOUS = 1;

/**
 * A socket on one of Node's TCP handles, with as much of a `net.Socket` as a relay needs: it can be half
 * open, and reads into buffers of ours. It has no streams in it: with two of these a connection allocates half
 * of what it does with two `net.Socket`, and a request a third (`bench/counts`).
 *
 * Errors and events come as those of a `net.Socket` do: 'error' before 'close', 'end' for a FIN, 'finish' when
 * our own FIN is sent. It closes itself when both directions have ended.
 */
export class HandleSocket extends EventEmitter implements RelaySocket {
  connecting = false;
  destroyed = false;
  writableEnded = false;
  writableFinished = false;
  readonly #calls: StreamCalls;
  readonly #handle: TcpHandle;
  readonly #onread: OnReadOpts;
  #buffer: Buffer | undefined;
  #reading = false;
  #readEnded = false;
  /** Writes that the kernel has not taken whole. */
  #writes = 0;
  #writtenBytes = 0;
  /** Called when there are no such writes any more. */
  #drained: Done[] = [];
  #shutdownState: 'none' | 'pending' | 'done' = 'none';
  #resetsAfterShutdown = false;
  #local: HandleAddress | undefined;

  /** Owns the handle, which has a connection. It does not read before `read`. */
  constructor(calls: StreamCalls, handle: TcpHandle, onread: OnReadOpts) {
    super();
    this.#calls = calls;
    this.#handle = handle;
    this.#onread = onread;
    handle.onread = () => this.#onRead();
  }

  /** Connects to an IP literal; 'connect' or 'error' follows. Throws when the port is not one. */
  static connect(
    calls: StreamCalls,
    to: { readonly address: string; readonly port: number; readonly family: Family },
    onread: OnReadOpts,
  ): HandleSocket {
    const { address, port, family } = to;
    if (!(Number.isInteger(port) && port >= 0 && port < 65536)) {
      throw new RangeError(`not a port: ${port}`);
    }
    const handle = calls.newHandle();
    const socket = new HandleSocket(calls, handle, onread);
    socket.connecting = true;
    const request = calls.newConnectRequest();
    const where = `${address}:${port}`;
    request.oncomplete = (status) => socket.#connected(status, where);
    const status =
      family === 4
        ? handle.connect(request, address, port)
        : handle.connect6(request, address, port);
    if (status !== 0) process.nextTick(() => socket.#connected(status, where));
    return socket;
  }

  get writable(): boolean {
    return !this.writableEnded && !this.destroyed && !this.connecting;
  }

  get writableLength(): number {
    return this.#writtenBytes;
  }

  /** The same, exactly: a part of a chunk may have been taken. */
  get queuedBytes(): number {
    return this.destroyed ? 0 : this.#handle.writeQueueSize;
  }

  get localAddress(): string | undefined {
    return this.#localAddress().address;
  }

  get localPort(): number | undefined {
    return this.#localAddress().port;
  }

  read(): void {
    if (this.#reading || this.#readEnded || this.destroyed || this.connecting) return;
    if (this.#buffer === undefined) {
      this.#buffer = this.#nextBuffer();
      this.#handle.useUserBuffer(this.#buffer);
    }
    this.#reading = true;
    const status = this.#handle.readStart();
    if (status !== 0) this.destroy(systemError('read', status));
  }

  pause(): void {
    if (!this.#reading) return;
    this.#reading = false;
    this.#handle.readStop();
  }

  resume(): void {
    this.read();
  }

  write(chunk: Buffer, done?: Done): void {
    if (this.destroyed || this.writableEnded) {
      if (done !== undefined) process.nextTick(done, new Error('written after the end'));
      return;
    }
    if (chunk.length === 0 && this.#writes > 0) {
      if (done !== undefined) this.#drained.push(done);
      return;
    }
    const calls = this.#calls;
    const request = calls.writeRequest();
    const status = this.#handle.writeBuffer(request, chunk);
    if (status !== 0) {
      if (done !== undefined) this.#drained.push(done);
      this.destroy(systemError('write', status));
    } else if (calls.lastWriteWaits()) {
      calls.keepWriteRequest();
      request.buffer = chunk;
      request.written = (written) => this.#onWritten(written);
      this.#writes += 1;
      this.#writtenBytes += chunk.length;
      if (done !== undefined) this.#drained.push(done);
    } else if (done !== undefined) process.nextTick(done, null);
  }

  end(): void {
    if (this.writableEnded || this.destroyed) return;
    this.writableEnded = true;
    if (this.#writes === 0) this.#shutdown();
  }

  destroy(error?: Error): void {
    if (this.destroyed) return;
    this.#forget(error);
    this.#handle.close(this.#onClosed);
  }

  /** While its shutdown is pending, libuv refuses a reset, which then follows in the next turn of the loop. */
  resetAndDestroy(): void {
    if (this.destroyed) return;
    this.pause();
    this.#forget();
    if (this.#shutdownState === 'pending') this.#resetsAfterShutdown = true;
    else resetHandle(this.#handle, this.#onClosed);
  }

  setKeepAlive(enable: boolean, initialDelayMs: number): void {
    if (!this.destroyed) this.#handle.setKeepAlive(enable, Math.trunc(initialDelayMs / 1000));
  }

  readonly #onClosed = (): void => {
    this.emit('close');
  };

  #forget(error?: Error): void {
    this.destroyed = true;
    this.connecting = false;
    this.#reading = false;
    this.#writtenBytes = 0;
    this.#failWrites(error);
    if (error !== undefined) process.nextTick(() => this.emit('error', error));
  }

  /** As a `net.Socket` does: those who wait for the kernel are told that they wait in vain. */
  #failWrites(cause?: Error): void {
    const drained = this.#drained;
    if (drained.length === 0) return;
    this.#drained = [];
    const error = cause ?? new Error('closed before it was written');
    for (const done of drained) process.nextTick(done, error);
  }

  #connected(status: number, where: string): void {
    if (this.destroyed) return;
    this.connecting = false;
    if (status !== 0) {
      this.destroy(systemError('connect', status, where));
      return;
    }
    this.#handle.setNoDelay(true);
    this.emit('connect');
    this.read();
  }

  /** Returns the buffer for the next read if it is another one. */
  #onRead(): Buffer | undefined {
    const length = this.#calls.readLength();
    if (this.destroyed || length === 0 || this.#buffer === undefined) return undefined;
    if (length > 0) {
      if (!this.#onread.callback(length, this.#buffer)) this.pause();
      const next = this.#nextBuffer();
      if (next === this.#buffer) return undefined;
      this.#buffer = next;
      return next;
    }
    if (length !== this.#calls.endOfFile) {
      this.destroy(systemError('read', length));
      return undefined;
    }
    this.#readEnded = true;
    this.pause();
    this.emit('end');
    this.#closeWhenDone();
    return undefined;
  }

  #nextBuffer(): Buffer {
    const { buffer } = this.#onread;
    return (typeof buffer === 'function' ? buffer() : buffer) as Buffer;
  }

  #onWritten(status: number): void {
    if (this.destroyed) return;
    if (status !== 0) {
      this.destroy(systemError('write', status));
      return;
    }
    this.#writes -= 1;
    if (this.#writes > 0) return;
    this.#writtenBytes = 0;
    const drained = this.#drained;
    this.#drained = [];
    for (const done of drained) done(null);
    if (this.writableEnded && this.#writes === 0) this.#shutdown();
  }

  /** Once only: libuv answers a second one with ENOTCONN, which counts as a FIN that is out. */
  #shutdown(): void {
    if (this.destroyed || this.#shutdownState !== 'none') return;
    this.#shutdownState = 'pending';
    const request = this.#calls.newShutdownRequest();
    request.oncomplete = (status) => this.#onShutdown(status);
    const status = this.#handle.shutdown(request);
    if (status !== 0) process.nextTick(() => this.#onShutdown(status));
  }

  #onShutdown(status: number): void {
    this.#shutdownState = 'done';
    if (this.#resetsAfterShutdown) resetHandle(this.#handle, this.#onClosed);
    if (this.destroyed) return;
    if (status !== 0 && status !== SYNCHRONOUS && status !== this.#calls.notConnected) {
      this.destroy(systemError('shutdown', status));
      return;
    }
    this.writableFinished = true;
    this.emit('finish');
    this.#closeWhenDone();
  }

  #closeWhenDone(): void {
    if (this.#readEnded && this.writableFinished) this.destroy();
  }

  #localAddress(): HandleAddress {
    if (this.destroyed) return NO_ADDRESS;
    if (this.#local === undefined) {
      this.#local = {};
      this.#handle.getsockname(this.#local);
    }
    return this.#local;
  }
}

function systemError(syscall: string, status: number, where = ''): Error {
  const code = getSystemErrorName(status);
  const message = `${syscall} ${code} ${where}`.trim();
  return Object.assign(new Error(message), { code, errno: status, syscall });
}
