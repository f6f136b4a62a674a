import type { Socket } from 'node:net';
import type { RelayEnd, RelayOwner, TcpRelay } from '../../tcp/transport.ts';
import type { NodeTcpClient } from './client.ts';
import type { Direction } from './direction.ts';
import { whenFin, resetSocket } from './ends.ts';

/** The relay of one client; see the relay contract in `tcp/transport.ts`. */
export class NodeRelay implements TcpRelay {
  readonly #client: NodeTcpClient;
  readonly #owner: RelayOwner;
  #endpoint: Socket | undefined;
  #outward: Direction | undefined;
  /** Sockets that are not closed yet. */
  #open = 1;
  #isStarted = false;
  #halfClosed = false;
  #reason: RelayEnd | undefined;

  /** Owns the client's socket. `use` has to follow. */
  constructor(client: NodeTcpClient, owner: RelayOwner) {
    this.#client = client;
    this.#owner = owner;
  }

  get bytesIn(): number {
    return this.#client.inward.bytes;
  }

  get bytesOut(): number {
    return this.#outward?.bytes ?? 0;
  }

  /** Relays to this endpoint, whose socket it owns from now on. `start` has to follow. */
  use(endpoint: Socket, outward: Direction): void {
    const { socket, inward } = this.#client;
    this.#open += 1;
    this.#endpoint = endpoint;
    this.#outward = outward;
    inward.to(endpoint, this.#owner.counters, 'bytesIn');
    outward.to(socket, this.#owner.counters, 'bytesOut');
  }

  start(): void {
    const { socket, inward } = this.#client;
    if (!this.#isStarted && socket.closed) this.#open -= 1;
    this.#isStarted = true;
    if (socket.destroyed) {
      this.cut('client-reset');
      return;
    }
    inward.start();
    // It came when nothing could be done about it.
    if (socket.readableEnded) this.ended(inward);
  }

  unsent(): number {
    return this.#client.socket.writableLength + (this.#endpoint?.writableLength ?? 0);
  }

  keepAlive(idleMs: number): void {
    this.#endpoint?.setKeepAlive(true, idleMs);
  }

  cut(reason: RelayEnd): void {
    this.#reason ??= reason;
    resetSocket(this.#client.socket);
    if (this.#endpoint !== undefined) resetSocket(this.#endpoint);
  }

  /** The source of a direction has sent its FIN, and everything before it has been read. */
  ended(direction: Direction): void {
    const { inward, socket } = this.#client;
    const source = direction === inward ? socket : this.#endpoint;
    if (source !== undefined) whenFin(source, () => this.#fin(direction));
  }

  /** A socket is closed. */
  closed(): void {
    this.#open -= 1;
    if (this.#open > 0 || !this.#isStarted) return;
    if (this.#endpoint === undefined && this.#reason === undefined) this.#reason = 'client-reset';
    this.#client.inward.release();
    this.#outward?.release();
    this.#owner.relayEnded(this.#reason ?? 'closed');
  }

  endpointFailed(endpoint: Socket, error: Error): void {
    if (endpoint !== this.#endpoint) return;
    const { socket, inward } = this.#client;
    const isUntouched = !inward.isTouched && this.#outward?.isTouched !== true && !this.#halfClosed;
    if (isUntouched && this.#reason === undefined && !socket.destroyed) {
      this.#endpoint = undefined;
      this.#outward?.release();
      inward.pause();
      if (this.#owner.endpointLost(error)) return;
    }
    this.cut('endpoint-reset');
  }

  #fin(direction: Direction): void {
    const { inward } = this.#client;
    const isLast = this.#halfClosed;
    const other = direction === inward ? this.#outward : inward;
    this.#halfClosed = true;
    direction.end(isLast);
    other?.keepSmall();
    if (!isLast && this.#reason === undefined) this.#owner.halfClosed();
  }
}
