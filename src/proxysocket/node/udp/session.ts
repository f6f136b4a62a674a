import { createSocket, type BindOptions, type Socket, type SocketOptions } from 'node:dgram';
import type { Family } from '../../../util/family.ts';
import { takeInherited } from '../../../util/inherited.ts';
import type { EngineLimits } from '../../limits.ts';
import { UdpSession, type SessionStart } from '../../udp/transport.ts';

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
  /** The first datagram, until the socket is open. */
  #pending: Buffer | undefined;
  #unaskedIn = 0;
  #unaskedOut = 0;

  constructor(start: SessionStart, front: Socket, limits: EngineLimits) {
    super(start);
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
    } else if (this.state === 'opening' && this.#pending === undefined) {
      this.#pending = message;
    } else {
      // Sockets open, or fail to, before Node reports the next datagram.
      this.owner.counters.datagramsDropped += 1;
    }
  }

  end(): number {
    const waiting = this.#pending === undefined ? 0 : 1;
    this.state = 'ended';
    this.#pending = undefined;
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
      if (this.state === 'open') this.failedWith(error);
    } else if (this.#unaskedIn === 0) this.#unaskedIn = UNASKED_AFTER_SENT;
  };

  readonly #onReply = (message: Buffer): void => {
    if (this.state !== 'open') return;
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
    else if (this.state === 'open') this.owner.counters.datagramsDropped += 1;
  };

  /** Whether the socket accepts one more datagram; otherwise it is dropped and counted. */
  #hasRoom(socket: Socket, { length }: Buffer): boolean {
    if (!sendQueueFull(socket, length, this.#limits.udpSendQueueBytes)) return true;
    this.host.queueFull(this);
    return false;
  }

  #onConnect(socket: Socket, error: Error | undefined): void {
    if (this.state !== 'opening' || this.#socket !== socket) return;
    const failed = error ?? this.connected(socket.address());
    if (failed !== undefined) {
      this.#onSocketError(socket, failed);
      return;
    }
    const pending = this.#pending;
    this.#pending = undefined;
    if (pending !== undefined) this.#send(pending);
  }

  #onSocketError(socket: Socket, error: Error): void {
    if (this.state === 'open') this.failedWith(error);
    else if (this.#socket === socket) {
      this.#socket = undefined;
      socket.close();
      this.host.openFailed(this, error);
    }
  }
}

/** Datagrams that wait in the process for one socket, at most, however small they are. */
const MAX_QUEUED_DATAGRAMS = 64;

/**
 * Every address is a literal. Without this, `dgram` calls its resolver for every datagram of an unconnected socket, and
 * `bind` and `connect` happen after they return.
 */
const literalLookup: NonNullable<SocketOptions['lookup']> = (host, _options, callback) => {
  callback(null, host, 0);
};

/**
 * A socket that is not bound yet and holds no descriptor. `dgram` binds one that only connects to the wildcard address,
 * where an IPv6 socket would take an IPv4 port, too.
 */
function newSocket(family: Family, reusePort = false): Socket {
  return createSocket({
    type: family === 4 ? 'udp4' : 'udp6',
    ipv6Only: family === 6,
    reusePort,
    lookup: literalLookup,
  });
}

/** An inherited socket, or a new one that is bound. Throws the system's error after closing it. */
export function boundSocket(
  family: Family,
  address: string,
  port: number,
  reusePort = false,
): Socket {
  const inherited = inheritedSocket(family, address, port);
  if (inherited !== undefined) return inherited;
  return bind(newSocket(family, reusePort), { address, port, exclusive: true });
}

export function inheritedSocket(family: Family, address: string, port: number): Socket | undefined {
  const fd = takeInherited('UDP', address, port);
  return fd === undefined ? undefined : bind(newSocket(family), { fd });
}

/** Both events come before `bind` returns, since no address is looked up. */
function bind(socket: Socket, where: BindOptions): Socket {
  let failure: Error | undefined;
  const onError = (error: Error): void => {
    failure = error;
  };
  socket.once('error', onError).bind(where).off('error', onError);
  if (failure === undefined) return socket;
  socket.close();
  throw failure;
}

/**
 * Asks for larger kernel buffers. Linux and Windows grant what their maximum allows; some systems
 * refuse instead, and the socket then keeps its default: a smaller size is no error.
 */
export function setBufferSizes(socket: Socket, bytes: number): void {
  try {
    socket.setRecvBufferSize(bytes);
    socket.setSendBufferSize(bytes);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_SOCKET_BUFFER_SIZE') throw error;
  }
}

/**
 * Whether a datagram has to be dropped because the kernel takes no more. `dgram` would queue it
 * without limit. In the usual case nothing waits and this is one cheap call.
 */
function sendQueueFull(socket: Socket, length: number, maxBytes: number): boolean {
  const waiting = socket.getSendQueueCount();
  if (waiting === 0) return false;
  return waiting >= MAX_QUEUED_DATAGRAMS || socket.getSendQueueSize() + length > maxBytes;
}

interface Handle {
  readonly fd: number;
  recvStop?(): number;
}

interface State {
  readonly handle?: Handle;
}

/** The handle of a bound socket, which Node does not document; undefined where it is not found. */
export function handleOf(socket: Socket): Handle | undefined {
  const key = Object.getOwnPropertySymbols(socket).find(
    ({ description }) => description === 'state symbol',
  );
  return key && (socket as unknown as Readonly<Record<symbol, State>>)[key]?.handle;
}
