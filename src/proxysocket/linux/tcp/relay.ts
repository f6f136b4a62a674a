import type { RelayEnd, RelayOwner, TcpRelay } from '../../tcp/transport.ts';
import type { Loop } from '../loop.ts';
import { ECONNRESET } from '../sys/constants.ts';
import { systemError } from '../sys/errno.ts';
import type { RelayMemory } from './memory.ts';
import { Side } from './side.ts';
import type { LinuxTcpTransport } from './transport.ts';

/** The relay of one client; see the relay contract in `tcp/transport.ts`. */
export class Relay implements TcpRelay {
  readonly loop: Loop;
  readonly memory: RelayMemory;
  readonly #owner: RelayOwner;
  readonly #client: Side;
  #endpoint: Side | undefined;
  /** Events of the endpoint before `start`. */
  #mask = 0;
  #isWatched = false;
  #halfClosed = false;
  #isOver = false;

  /** Owns the client's socket. `use` has to follow. */
  constructor({ loop, memory }: LinuxTcpTransport, clientFd: number, owner: RelayOwner) {
    this.loop = loop;
    this.memory = memory;
    this.#owner = owner;
    this.#client = new Side(clientFd, this, owner.counters, true);
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  get bytesIn(): number {
    return this.#client.bytes;
  }

  get bytesOut(): number {
    return this.#endpoint?.bytes ?? 0;
  }

  /** Relays to this endpoint, whose socket it owns from now on. `start` has to follow. */
  use(endpointFd: number, mask: number): void {
    const endpoint = new Side(endpointFd, this, this.#owner.counters, false);
    this.#endpoint = endpoint;
    this.#mask = mask;
    endpoint.join(this.#client);
    this.#client.join(endpoint);
  }

  start(): void {
    const endpoint = this.#endpoint;
    if (endpoint === undefined) return;
    this.loop.handOver(endpoint.fd, endpoint);
    const isFirst = !this.#isWatched;
    this.#isWatched = true;
    // What the client has sent already comes as an event.
    if (isFirst && this.loop.watch(this.#client.fd, this.#client) < 0) {
      this.cut('destroyed');
      return;
    }
    endpoint.ready(this.#mask);
    if (!isFirst) this.#client.ready(0);
  }

  keepAlive(idleMs: number): void {
    if (this.#endpoint !== undefined) this.loop.sys.sockets.setKeepAlive(this.#endpoint.fd, idleMs);
  }

  unsent(): number {
    const { sockets } = this.loop.sys;
    return sockets.queued(this.#client.fd) + sockets.queued(this.#endpoint?.fd ?? -1);
  }

  /** A side has read its peer's FIN; everything before it has been written. */
  fin(side: Side): void {
    const other = side === this.#client ? this.#endpoint : this.#client;
    if (other === undefined) return;
    if (other.ended) {
      // Closing sends the FIN, behind what the kernel still has to send.
      this.#end('closed', false);
      return;
    }
    this.loop.sys.sockets.shutdownWrite(other.fd);
    this.#halfClosed = true;
    this.#owner.halfClosed();
  }

  /** A socket has been reset or has failed; `errno` may be 0. */
  broken(side: Side, errno: number): void {
    if (this.#isOver) return;
    const isLost = side !== this.#client && !this.#halfClosed && this.#isUntouched;
    if (isLost && this.#replacesEndpoint(errno)) return;
    this.cut(side === this.#client ? 'client-reset' : 'endpoint-reset');
  }

  cut(reason: RelayEnd): void {
    this.#end(reason, true);
  }

  get #isUntouched(): boolean {
    return this.bytesIn === 0 && this.bytesOut === 0;
  }

  #replacesEndpoint(errno: number): boolean {
    const endpoint = this.#endpoint;
    if (endpoint === undefined) return false;
    this.#endpoint = undefined;
    this.#client.join(undefined);
    endpoint.release();
    this.loop.close(endpoint.fd);
    return this.#owner.endpointLost(systemError(errno === 0 ? ECONNRESET : errno, 'read'));
  }

  #end(reason: RelayEnd, withReset: boolean): void {
    if (this.#isOver) return;
    this.#isOver = true;
    const { loop } = this;
    for (const side of [this.#client, this.#endpoint]) {
      if (side === undefined) continue;
      if (withReset) loop.reset(side.fd);
      else loop.close(side.fd);
      side.release();
    }
    this.#owner.relayEnded(reason);
  }
}
