import type { Socket } from 'node:dgram';
import { selfConnectError } from '../../core/connect-error.ts';
import type { EngineLimits } from '../../limits.ts';
import {
  UdpSession,
  type ListenSocket,
  type SessionHost,
  type SessionStart,
} from '../../udp/transport.ts';
import { setBufferSizes, MAX_QUEUED_DATAGRAMS, newSocket, sendQueueFull } from './socket.ts';

/**
 * `dgram` reports the result of a datagram only through a callback, which costs a tenth of the whole path. So most
 * datagrams have none: this many after a sign of success. Both numbers are even, so every third or fifteenth
 * datagram has one: an ICMP error is returned by the next system call of any kind, and with an even period that
 * could always be one without a callback.
 */
const UNASKED_AFTER_SENT = 2;
const UNASKED_AFTER_REPLY = 14;

export class NodeUdpSession extends UdpSession {
  readonly #limits: EngineLimits;
  readonly #front: Socket;
  #socket: Socket | undefined;
  #pending: Buffer[] = [];
  #pendingBytes = 0;
  #unaskedIn = 0;
  #unaskedOut = 0;

  constructor(
    listenSocket: ListenSocket,
    host: SessionHost,
    start: SessionStart,
    front: Socket,
    limits: EngineLimits,
  ) {
    super(listenSocket, host, start);
    this.#front = front;
    this.#limits = limits;
  }

  open(): void {
    if (this.state !== 'opening') return;
    const socket = newSocket(this.endpoint.family);
    this.#socket = socket;
    socket.on('message', this.#onReply);
    socket.on('error', (error) => this.#onSocketError(socket, error));
    // Connecting only from here on: `connect` on an unbound socket keeps it open forever if the bind that it implies
    // fails.
    socket.once('listening', () => {
      setBufferSizes(socket, this.#limits.udpSocketBuffer);
      socket.connect(this.endpoint.port, this.endpoint.address, ((error?: Error) =>
        this.#onConnect(socket, error)) as () => void);
    });
    socket.bind({ port: 0, exclusive: true });
  }

  forward(message: Buffer): void {
    if (this.state === 'open') {
      this.host.touch(this);
      this.#send(message);
    } else if (this.state === 'opening') {
      const bytes = this.#pendingBytes + message.length;
      const { length } = this.#pending;
      const fits = length < MAX_QUEUED_DATAGRAMS && bytes <= this.#limits.udpSendQueueBytes;
      if (length > 0 && !fits) {
        this.host.queueFull(this);
        return;
      }
      this.#pending.push(message);
      this.#pendingBytes = bytes;
    } else {
      this.owner.counters.datagramsDropped += 1;
    }
  }

  end(): number {
    const waiting = this.#pending.length;
    this.state = 'ended';
    this.#pending = [];
    this.#socket?.close();
    this.#socket = undefined;
    return waiting;
  }

  #send(message: Buffer): void {
    const socket = this.#socket;
    if (socket === undefined || !this.#hasRoom(socket, message)) return;
    this.countIn(1, message.length);
    if (this.#unaskedIn > 0) {
      this.#unaskedIn -= 1;
      socket.send(message);
    } else {
      socket.send(message, this.#onSent);
    }
  }

  readonly #onSent = (error: Error | null): void => {
    if (error !== null) {
      if (this.isOpen) this.failedWith(error);
    } else if (this.#unaskedIn === 0) this.#unaskedIn = UNASKED_AFTER_SENT;
  };

  readonly #onReply = (message: Buffer): void => {
    if (!this.isOpen) return;
    this.#unaskedIn = UNASKED_AFTER_REPLY;
    this.answered();
    const { address, port } = this.client;
    const socket = this.#front;
    if (!this.#hasRoom(socket, message)) return;
    this.countOut(1, message.length);
    if (this.#unaskedOut > 0) {
      this.#unaskedOut -= 1;
      socket.send(message, port, address);
    } else {
      socket.send(message, port, address, this.#onReplySent);
    }
  };

  readonly #onReplySent = (error: Error | null): void => {
    if (error === null) this.#unaskedOut = UNASKED_AFTER_REPLY;
    else if (this.isOpen) this.owner.counters.datagramsDropped += 1;
  };

  /** Whether the socket accepts one more datagram; otherwise it is dropped and counted. */
  #hasRoom(socket: Socket, { length }: Buffer): boolean {
    if (!sendQueueFull(socket, length, this.#limits.udpSendQueueBytes)) return true;
    this.host.queueFull(this);
    return false;
  }

  #onConnect(socket: Socket, error: Error | undefined): void {
    if (this.state !== 'opening' || this.#socket !== socket) return;
    const local = error === undefined ? socket.address() : undefined;
    if (local === undefined || this.isOwnAddress(local)) {
      this.#onSocketError(socket, error ?? selfConnectError());
      return;
    }
    this.state = 'open';
    this.host.opened(this, local);
    const pending = this.#pending;
    this.#pending = [];
    for (const message of pending) this.#send(message);
  }

  #onSocketError(socket: Socket, error: Error): void {
    if (this.isOpen) this.failedWith(error);
    else if (this.#socket === socket) {
      this.#socket = undefined;
      socket.close();
      this.host.openFailed(this, error);
    }
  }
}
