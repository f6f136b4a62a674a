import type { ServicePortCounters } from '../../counters.ts';
import type { RelayEnded } from '../../events.ts';
import type { IdleEntry, IdleLane, IdleLanes } from '../../core/idle-lanes.ts';
import type { Loop } from '../loop.ts';
import type { RelayMemory } from './memory.ts';
import { Side } from './side.ts';

export type RelayEnd = RelayEnded['reason'];

/** Who made a relay. */
export interface RelayOwner {
  /**
   * The endpoint's side broke before a byte went through, either way: nothing is lost if another
   * endpoint serves the client. Returns whether one is asked; then `use` follows, or `cut`. Until
   * then the relay has no endpoint.
   */
  endpointLost(errno: number): boolean;
  /** Called once, when the sockets have been given up. */
  relayEnded(reason: RelayEnd): void;
}

/** What a relay works with. */
export interface RelayParts {
  readonly loop: Loop;
  readonly memory: RelayMemory;
  /** Relays of which one side has ended. */
  readonly halfClosed: IdleLanes<Relay>;
  readonly counters: ServicePortCounters;
  readonly owner: RelayOwner;
}

/**
 * The life of the relay of one client.
 *
 * - A FIN is passed on behind the data before it; the other direction goes on.
 * - Once one side has ended, the other direction must move: when nothing does for the half-close
 *   limit, both sides are reset.
 * - A reset, or any other error, of one side resets the other side; but an endpoint that breaks
 *   before anything went through may be replaced.
 */
export class Relay implements IdleEntry<Relay> {
  readonly loop: Loop;
  readonly memory: RelayMemory;
  readonly client: Side;

  lane: IdleLane<Relay> | undefined = undefined;
  older: Relay | undefined = undefined;
  newer: Relay | undefined = undefined;
  usedAt = 0;

  readonly #parts: RelayParts;
  #endpoint: Side | undefined;
  /** Bytes have been passed on. */
  #used = false;
  #halfClosed = false;
  /** What the kernel still had to send when nothing more could be written, or when this was last looked at. */
  #queued: number | undefined;
  #isOver = false;

  /** The client's socket is open and belongs to the relay from now on. `use` has to follow. */
  constructor(clientFd: number, parts: RelayParts) {
    this.#parts = parts;
    this.loop = parts.loop;
    this.memory = parts.memory;
    this.client = new Side(clientFd, this, parts.counters, true);
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** Bytes from the client and from the endpoint. */
  get bytes(): { readonly in: number; readonly out: number } {
    return { in: this.client.bytes, out: this.#endpoint?.bytes ?? 0 };
  }

  /** Relays to this endpoint, whose socket belongs to the relay from now on. Returns its side. */
  use(endpointFd: number): Side {
    const endpoint = new Side(endpointFd, this, this.#parts.counters, false);
    this.#endpoint = endpoint;
    endpoint.join(this.client);
    this.client.join(endpoint);
    return endpoint;
  }

  /** Bytes were passed on. */
  moved(): void {
    this.#used = true;
    if (!this.#halfClosed) return;
    this.#queued = undefined;
    this.#parts.halfClosed.touch(this);
  }

  /** A side takes no more for now. */
  stuck(): void {
    if (this.#halfClosed) this.#queued = this.#unsent();
  }

  /**
   * Half closed, and nothing was written for the whole limit. But a slow reader may be taking what the
   * kernel has been given before, and a large part of that has to go before the kernel takes more.
   */
  idle(): void {
    const former = this.#queued;
    this.#queued = this.#unsent();
    const moves = this.#queued > 0 && (former === undefined || this.#queued < former);
    if (moves) this.#parts.halfClosed.touch(this);
    else this.cut('half-close-timeout');
  }

  /** A side has read its peer's FIN; everything before it has been written. */
  fin(side: Side): void {
    const other = side === this.client ? this.#endpoint : this.client;
    if (other === undefined) return;
    if (other.ended) {
      // Closing sends the FIN, behind what the kernel still has to send.
      this.#end('closed', false);
      return;
    }
    this.loop.sys.sockets.shutdownWrite(other.fd);
    this.#halfClosed = true;
    this.#parts.halfClosed.touch(this);
  }

  /** A socket has been reset or has failed. */
  broken(side: Side, errno: number): void {
    if (this.#isOver) return;
    if (side === this.client) {
      this.cut('client-reset');
      return;
    }
    if (!this.#used && !this.#halfClosed && this.#parts.owner.endpointLost(errno)) return;
    this.cut('endpoint-reset');
  }

  /** Gives up the endpoint's socket; the client waits for another one. */
  drop(): void {
    const endpoint = this.#endpoint;
    if (endpoint === undefined) return;
    this.#endpoint = undefined;
    this.client.join(undefined);
    endpoint.release();
    this.loop.close(endpoint.fd);
  }

  /** Resets both sides. Only the first reason counts. */
  cut(reason: RelayEnd): void {
    this.#end(reason, true);
  }

  #unsent(): number {
    const { sockets } = this.loop.sys;
    return sockets.queued(this.client.fd) + sockets.queued(this.#endpoint?.fd ?? -1);
  }

  #end(reason: RelayEnd, withReset: boolean): void {
    if (this.#isOver) return;
    this.#isOver = true;
    const { loop, halfClosed, owner } = this.#parts;
    for (const side of [this.client, this.#endpoint]) {
      if (side === undefined) continue;
      if (withReset) loop.reset(side.fd);
      else loop.close(side.fd);
      side.release();
    }
    halfClosed.remove(this);
    owner.relayEnded(reason);
  }
}
