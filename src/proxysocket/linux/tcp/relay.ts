import type { ServicePortCounters } from '../../counters.ts';
import type { RelayEnded } from '../../events.ts';
import type { IdleEntry, IdleLane, IdleLanes } from '../../udp/idle-lanes.ts';
import type { Loop } from '../loop.ts';
import type { RelayMemory } from './memory.ts';
import { Side } from './side.ts';

export type RelayEnd = RelayEnded['reason'];

/** What a relay works with, and who is told of its end. */
export interface RelayParts {
  readonly loop: Loop;
  readonly memory: RelayMemory;
  /** Relays of which one side has ended. */
  readonly halfClosed: IdleLanes<Relay>;
  readonly counters: ServicePortCounters;
  readonly ended: (reason: RelayEnd) => void;
}

/**
 * The life of one established TCP relay.
 *
 * - A FIN is passed on behind the data before it; the other direction goes on.
 * - Once one side has ended, the other direction must move: when nothing does for the half-close
 *   limit, both sides are reset.
 * - A reset, or any other error, of one side resets the other side.
 */
export class Relay implements IdleEntry<Relay> {
  readonly loop: Loop;
  readonly memory: RelayMemory;
  readonly client: Side;
  readonly endpoint: Side;

  lane: IdleLane<Relay> | undefined = undefined;
  older: Relay | undefined = undefined;
  newer: Relay | undefined = undefined;
  usedAt = 0;

  readonly #parts: RelayParts;
  #halfClosed = false;
  /** What the kernel still had to send when nothing more could be written, or when this was last looked at. */
  #queued: number | undefined;
  #isOver = false;

  /** Both sockets are open and belong to the relay from now on. */
  constructor(clientFd: number, endpointFd: number, parts: RelayParts) {
    this.#parts = parts;
    this.loop = parts.loop;
    this.memory = parts.memory;
    this.client = new Side(clientFd, this, parts.counters, true);
    this.endpoint = new Side(endpointFd, this, parts.counters, false);
    this.client.join(this.endpoint);
    this.endpoint.join(this.client);
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** Bytes were passed on. */
  moved(): void {
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
    const other = side === this.client ? this.endpoint : this.client;
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
  broken(side: Side): void {
    this.cut(side === this.client ? 'client-reset' : 'endpoint-reset');
  }

  /** Resets both sides. Only the first reason counts. */
  cut(reason: RelayEnd): void {
    this.#end(reason, true);
  }

  #unsent(): number {
    const { sockets } = this.loop.sys;
    return sockets.queued(this.client.fd) + sockets.queued(this.endpoint.fd);
  }

  #end(reason: RelayEnd, withReset: boolean): void {
    if (this.#isOver) return;
    this.#isOver = true;
    const { loop, halfClosed, ended } = this.#parts;
    for (const { fd } of [this.client, this.endpoint]) {
      if (withReset) loop.reset(fd);
      else loop.close(fd);
    }
    halfClosed.remove(this);
    this.client.release();
    this.endpoint.release();
    ended(reason);
  }
}
