import { connect, type OnReadOpts } from 'node:net';
import type { Pick } from '../../roundrobin/types.ts';
import type { Clock } from '../../util/clock.ts';
import type { ConnectErrorCause } from '../counters.ts';
import { connectErrorCause } from './connect-error.ts';
import type { Deadline, DeadlineQueue } from '../core/deadlines.ts';
import { HandleSocket } from './handle-socket.ts';
import type { RelaySocket } from './relay-socket.ts';
import { resetSocket } from './reset.ts';
import type { StreamCalls } from './stream-calls.ts';

/** Who made an attempt, told of its outcome: exactly one of the two, unless it is abandoned. */
export interface AttemptOwner {
  connected(attempt: Attempt, socket: RelaySocket, seconds: number): void;
  failed(attempt: Attempt, cause: ConnectErrorCause, error: Error): void;
}

/** How the endpoint's socket is made. */
export interface SocketOptions {
  readonly onread: OnReadOpts;
  /** Makes sockets on handles; undefined: Node does what it documents. */
  readonly calls: StreamCalls | undefined;
}

export interface AttemptOptions {
  readonly clock: Clock;
  /** The attempts whose time is running; they are told by `timedOut`. */
  readonly timeouts: DeadlineQueue<Attempt>;
  readonly timeoutMs: number;
}

/** One attempt to connect to one endpoint. */
export class Attempt {
  readonly pick: Pick;
  readonly #owner: AttemptOwner;
  readonly #options: AttemptOptions;
  readonly #socket: RelaySocket;
  readonly #startedAt: number;
  /** Running while the outcome is open. */
  #deadline: Deadline<Attempt> | undefined;

  /** Throws when the endpoint's port is not one. */
  constructor(pick: Pick, how: SocketOptions, options: AttemptOptions, owner: AttemptOwner) {
    this.pick = pick;
    this.#owner = owner;
    this.#options = options;
    this.#startedAt = options.clock.now();
    this.#socket = open(pick.endpoint, how);
    this.#socket.once('connect', this.#onConnect);
    this.#socket.on('error', this.#onError);
    this.#deadline = options.timeouts.add(this);
  }

  /** Drops the attempt without telling its owner. */
  abandon(): void {
    if (!this.#settle()) return;
    // The 'error' listener stays: destroying a connecting socket may still report how it ended.
    this.#socket.destroy();
  }

  /** Called by the queue of timeouts. */
  timedOut(): void {
    const { timeoutMs } = this.#options;
    this.abandon();
    const error = new Error(`no answer within ${timeoutMs} ms`);
    this.#owner.failed(this, 'timeout', error);
  }

  readonly #onConnect = (): void => {
    if (!this.#settle()) return;
    if (this.#isConnectedToItself()) {
      resetSocket(this.#socket);
      this.#owner.failed(this, 'refused', new Error('connected to itself: nobody listens there'));
      return;
    }
    this.#socket.off('error', this.#onError);
    const seconds = (this.#options.clock.now() - this.#startedAt) / 1000;
    this.#owner.connected(this, this.#socket, seconds);
  };

  readonly #onError = (error: Error): void => {
    if (this.#settle()) this.#owner.failed(this, connectErrorCause(error), error);
  };

  /**
   * To reach an endpoint of this host, the kernel may choose the endpoint's own port for our side. If
   * nobody listens there, TCP then connects the socket to itself: the client would get its own bytes
   * back, and the endpoint could not have its port again.
   */
  #isConnectedToItself(): boolean {
    const { address, port } = this.pick.endpoint;
    return this.#socket.localPort === port && this.#socket.localAddress === address;
  }

  #settle(): boolean {
    if (this.#deadline === undefined) return false;
    this.#deadline.remove();
    this.#deadline = undefined;
    return true;
  }
}

function open(endpoint: Pick['endpoint'], { onread, calls }: SocketOptions): RelaySocket {
  if (calls !== undefined) return HandleSocket.connect(calls, endpoint, onread);
  const { address: host, port } = endpoint;
  // An address literal needs no resolver.
  return connect({ host, port, allowHalfOpen: true, noDelay: true, onread });
}
