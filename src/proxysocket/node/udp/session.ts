import type { Socket } from 'node:dgram';
import type { EngineLimits } from '../../limits.ts';
import {
  UdpSession,
  type ListenSocket,
  type SessionHost,
  type SessionStart,
} from '../../udp/transport.ts';
import { setBufferSizes, MAX_QUEUED_DATAGRAMS, newSocket, sendQueueFull } from './socket.ts';

type State =
  | {
      readonly kind: 'opening';
      readonly socket: Socket | undefined;
      /** Datagrams that wait for the socket, in order. */ readonly pending: Buffer[];
      pendingBytes: number;
    }
  | { readonly kind: 'open'; readonly socket: Socket }
  | { readonly kind: 'ended' };

export interface NodeSessionListenSocket extends ListenSocket<NodeUdpSession> {
  readonly socket: Socket;
}

const ENDED: State = { kind: 'ended' };

/**
 * `dgram` reports the result of a datagram only through a callback, which costs a tenth of the whole path. So most
 * datagrams have none: this many after a sign of success. Both numbers are even, so every third or fifteenth
 * datagram has one: an ICMP error is returned by the next system call of any kind, and with an even period that
 * could always be one without a callback.
 */
const UNASKED_AFTER_SENT = 2;
const UNASKED_AFTER_REPLY = 14;

export class NodeUdpSession extends UdpSession<NodeUdpSession> {
  declare readonly listenSocket: NodeSessionListenSocket;
  readonly #host: SessionHost<NodeUdpSession>;
  readonly #limits: EngineLimits;
  #state: State = { kind: 'opening', socket: undefined, pending: [], pendingBytes: 0 };
  #unaskedIn = 0;
  #unaskedOut = 0;

  constructor(
    host: SessionHost<NodeUdpSession>,
    start: SessionStart<NodeUdpSession>,
    limits: EngineLimits,
  ) {
    super(start);
    this.#host = host;
    this.#limits = limits;
  }

  get isOpen(): boolean {
    return this.#state.kind === 'open';
  }

  get hasEnded(): boolean {
    return this.#state.kind === 'ended';
  }

  open(): void {
    const state = this.#state;
    if (state.kind !== 'opening') return;
    const socket = newSocket(this.endpoint.family);
    this.#state = { ...state, socket };
    socket.on('message', this.#onReply);
    socket.on('error', (error) => this.#onSocketError(socket, error));
    // Connecting only from here on: `connect` on an unbound socket keeps it open forever if the bind that it implies
    // fails.
    socket.once('listening', () => {
      try {
        setBufferSizes(socket, this.#limits.udpSocketBuffer);
        socket.connect(this.endpoint.port, this.endpoint.address, ((error?: Error) =>
          this.#onConnect(socket, error)) as () => void);
      } catch (error) {
        this.#onSocketError(socket, error as Error);
      }
    });
    socket.bind({ port: 0, exclusive: true });
  }

  /** Passes a datagram of the client on. */
  forward(message: Buffer): void {
    const state = this.#state;
    if (state.kind === 'open') {
      this.#host.touch(this);
      this.#send(state.socket, message);
    } else if (state.kind === 'opening') {
      const bytes = state.pendingBytes + message.length;
      const { length } = state.pending;
      const fits = length < MAX_QUEUED_DATAGRAMS && bytes <= this.#limits.udpSendQueueBytes;
      if (length > 0 && !fits) {
        this.#host.queueFull(this);
        return;
      }
      state.pending.push(message);
      state.pendingBytes = bytes;
    } else {
      this.owner.counters.datagramsDropped += 1;
    }
  }

  end(): number {
    const state = this.#state;
    this.#state = ENDED;
    if (state.kind === 'ended') return 0;
    state.socket?.close();
    return state.kind === 'opening' ? state.pending.length : 0;
  }

  #send(socket: Socket, message: Buffer): void {
    if (!this.#hasRoom(socket, message)) return;
    this.countIn(1, message.length);
    if (this.#unaskedIn > 0) {
      this.#unaskedIn -= 1;
      socket.send(message);
    } else {
      socket.send(message, this.#onSent);
    }
  }

  readonly #onSent = (error: Error | null): void => {
    if (error === null) {
      if (this.#unaskedIn === 0) this.#unaskedIn = UNASKED_AFTER_SENT;
    } else if (this.#state.kind === 'open') {
      this.owner.counters.datagramsDropped += 1;
      this.#host.failed(this, error);
    }
  };

  readonly #onReply = (message: Buffer): void => {
    if (this.#state.kind !== 'open') return;
    this.#host.touch(this);
    this.#unaskedIn = UNASKED_AFTER_REPLY;
    const { address, port } = this.client;
    const { socket } = this.listenSocket;
    if (this.datagramsOut === 0) this.owner.balancer.connected(this.endpoint);
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
    else if (this.#state.kind === 'open') this.owner.counters.datagramsDropped += 1;
  };

  /** Whether the socket accepts one more datagram; otherwise it is dropped and counted. */
  #hasRoom(socket: Socket, { length }: Buffer): boolean {
    if (!sendQueueFull(socket, length, this.#limits.udpSendQueueBytes)) return true;
    this.#host.queueFull(this);
    return false;
  }

  #onConnect(socket: Socket, error: Error | undefined): void {
    const state = this.#state;
    if (state.kind !== 'opening' || state.socket !== socket) return;
    if (error !== undefined) {
      this.#onSocketError(socket, error);
      return;
    }
    const local = socket.address();
    if (this.isOwnAddress(local)) {
      const refused = new Error('connected to itself: no process listens on the endpoint');
      this.#onSocketError(socket, Object.assign(refused, { code: 'ECONNREFUSED' }));
      return;
    }
    this.#state = { kind: 'open', socket };
    this.#host.opened(this, local);
    for (const message of state.pending) this.#send(socket, message);
  }

  #onSocketError(socket: Socket, error: Error): void {
    const state = this.#state;
    if (state.kind === 'open') {
      this.owner.counters.datagramsDropped += 1;
      this.#host.failed(this, error);
    } else if (state.kind === 'opening' && state.socket === socket) {
      this.#state = { ...state, socket: undefined };
      socket.close();
      this.#host.openFailed(this, error);
    }
  }
}
