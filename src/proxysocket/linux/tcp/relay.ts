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
    if (this.#halfClosed) this.#parts.halfClosed.touch(this);
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
