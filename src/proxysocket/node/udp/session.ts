import type { Socket } from 'node:dgram';
import type { BalancerEndpoint } from '../../../roundrobin/types.ts';
import type { ServicePort } from '../../core/service-port.ts';
import type { ClientAddress } from '../../udp/tables.ts';
import type { IdleLane } from '../../core/timers.ts';
import { askBuffers, MAX_QUEUED_DATAGRAMS, newSocket, sendQueueFull } from './socket.ts';
import type { Exit, SessionHost, SessionStart, UdpSession } from '../../udp/transport.ts';
import type { NodeFront } from './front.ts';

type State =
  | {
      readonly kind: 'opening';
      readonly socket: Socket | undefined;
      /** Datagrams that wait for the socket, in order. */ readonly pending: Buffer[];
      pendingBytes: number;
    }
  | { readonly kind: 'open'; readonly socket: Socket }
  | { readonly kind: 'ended' };

const NONE_TRIED: readonly BalancerEndpoint[] = [];
const ENDED: State = { kind: 'ended' };

/*
 * `dgram` reports the fate of a datagram only through a callback, and that costs a tenth of the
 * whole path. So most datagrams go without one: this many after a sign of success. Both numbers are
 * even, so every third or fifteenth datagram is asked about: an ICMP error is handed to whichever
 * system call comes next, and with an even period it could always be one without a callback.
 */
const UNASKED_AFTER_SENT = 2;
const UNASKED_AFTER_REPLY = 14;

/** One client port of one listening socket, and the connected socket to its endpoint. */
export class NodeUdpSession implements UdpSession<NodeUdpSession> {
  readonly client: ClientAddress;
  readonly front: NodeFront;
  readonly owner: ServicePort;
  /** Sessions of this process that its client's datagrams have passed before. */
  readonly hops: number;
  /** Set once it is open. Written by the host. */
  exit: Exit<NodeUdpSession> | undefined = undefined;
  /** Endpoints that could not be had. Written by the host. */
  tried: readonly BalancerEndpoint[] = NONE_TRIED;
  /** Whether another session was evicted because this one got no socket. Written by the host. */
  madeRoom = false;
  /** Set by the host before it calls `open`. */
  endpoint: BalancerEndpoint;
  datagramsIn = 0;
  datagramsOut = 0;

  lane: IdleLane<NodeUdpSession> | undefined = undefined;
  older: NodeUdpSession | undefined = undefined;
  newer: NodeUdpSession | undefined = undefined;
  usedAt = 0;

  readonly #host: SessionHost<NodeUdpSession>;
  #state: State = { kind: 'opening', socket: undefined, pending: [], pendingBytes: 0 };
  #unaskedIn = 0;
  #unaskedOut = 0;

  constructor(host: SessionHost<NodeUdpSession>, start: SessionStart<NodeFront>) {
    this.#host = host;
    this.front = start.front;
    this.owner = start.owner;
    this.client = start.client;
    this.endpoint = start.endpoint;
    this.hops = start.hops;
  }

  get isOpen(): boolean {
    return this.#state.kind === 'open';
  }

  get hasEnded(): boolean {
    return this.#state.kind === 'ended';
  }

  /** Opens the backend socket to `endpoint`, in place of one that could not be had. */
  open(): void {
    const state = this.#state;
    if (state.kind !== 'opening') return;
    const socket = newSocket(this.endpoint.family);
    this.#state = { ...state, socket };
    socket.on('message', this.#onReply);
    socket.on('error', (error) => this.#onSocketError(socket, error));
    // Connecting only from here on: `connect` on an unbound socket keeps it open for ever if the
    // bind that it implies fails.
    socket.once('listening', () => {
      try {
        askBuffers(socket, this.#host.socketBuffer);
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
      const fits = length < MAX_QUEUED_DATAGRAMS && bytes <= this.#host.sendQueueBytes;
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

  /**
   * Ends the session and frees its descriptor at once. Returns how many datagrams were still
   * waiting. Only the host calls this.
   */
  end(): number {
    const state = this.#state;
    this.#state = ENDED;
    if (state.kind === 'ended') return 0;
    state.socket?.close();
    return state.kind === 'opening' ? state.pending.length : 0;
  }

  #send(socket: Socket, message: Buffer): void {
    const { counters } = this.owner;
    const { length } = message;
    if (sendQueueFull(socket, length, this.#host.sendQueueBytes)) {
      this.#host.queueFull(this);
      return;
    }
    counters.datagramsIn += 1;
    counters.bytesIn += length;
    this.datagramsIn += 1;
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
    const { owner, client } = this;
    const { counters } = owner;
    const { length } = message;
    const { socket } = this.front;
    if (this.datagramsOut === 0) owner.balancer.connected(this.endpoint);
    if (sendQueueFull(socket, length, this.#host.sendQueueBytes)) {
      this.#host.queueFull(this);
      return;
    }
    counters.datagramsOut += 1;
    counters.bytesOut += length;
    this.datagramsOut += 1;
    if (this.#unaskedOut > 0) {
      this.#unaskedOut -= 1;
      socket.send(message, client.port, client.address);
    } else {
      socket.send(message, client.port, client.address, this.#onReplySent);
    }
  };

  readonly #onReplySent = (error: Error | null): void => {
    if (error === null) this.#unaskedOut = UNASKED_AFTER_REPLY;
    else if (this.#state.kind === 'open') this.owner.counters.datagramsDropped += 1;
  };

  #onConnect(socket: Socket, error: Error | undefined): void {
    const state = this.#state;
    if (state.kind !== 'opening' || state.socket !== socket) return;
    if (error !== undefined) {
      this.#onSocketError(socket, error);
      return;
    }
    const local = socket.address();
    const { address, port } = this.endpoint;
    if (local.port === port && local.address === address) {
      // An endpoint of this host that is not there, and whose port the kernel chose for our side.
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
