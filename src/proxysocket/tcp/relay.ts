import type { Socket } from 'node:net';
import type { RelayEnded } from '../events.ts';
import type { Direction } from './direction.ts';
import { whenFin } from './fin.ts';
import { resetSocket } from './reset.ts';

export type RelayEnd = RelayEnded['reason'];

/** The two sockets of a relay and the directions between them. */
export interface RelayParts {
  readonly client: Socket;
  readonly endpoint: Socket;
  /** From the client to the endpoint. */
  readonly inward: Direction;
  /** From the endpoint to the client. */
  readonly outward: Direction;
  readonly halfCloseTimeoutMs: number;
  /** Called once, when both sockets are closed. */
  readonly ended: (reason: RelayEnd) => void;
}

/**
 * The life of one established TCP relay.
 *
 * - A FIN is passed on behind the data before it; the other direction goes on.
 * - A side that has sent its FIN must take traffic: when nothing goes to it for the half-close limit,
 *   both sides are reset. Without this, a peer that never ends its half would hold the relay for ever.
 * - A reset, or any other error, of one side resets the other side.
 */
export class Relay {
  readonly #parts: RelayParts;
  #open = 2;
  #halfClosed = false;
  #reason: RelayEnd | undefined;

  constructor(parts: RelayParts) {
    this.#parts = parts;
    const { client, endpoint, inward, outward } = parts;
    inward.join(client, endpoint);
    outward.join(endpoint, client);
    this.#watch(client, inward, 'client-reset');
    this.#watch(endpoint, outward, 'endpoint-reset');
  }

  /** Resets both sides. Only the first reason counts. */
  cut(reason: RelayEnd): void {
    this.#reason ??= reason;
    resetSocket(this.#parts.client);
    resetSocket(this.#parts.endpoint);
  }

  #watch(source: Socket, direction: Direction, onError: RelayEnd): void {
    source.on('end', () => whenFin(source, () => this.#fin(source, direction)));
    source.on('error', () => this.cut(onError));
    source.on('close', () => this.#closed());
  }

  #fin(source: Socket, direction: Direction): void {
    const last = this.#halfClosed;
    this.#halfClosed = true;
    direction.end(last);
    this.#limitHalfClose(source);
  }

  /** The socket's own timer sees every write, and a slow reader that takes a large chunk bit by bit. */
  #limitHalfClose(source: Socket): void {
    // With everything written, too, it is being closed.
    if (source.destroyed || source.writableFinished) return;
    source.setTimeout(this.#parts.halfCloseTimeoutMs, () => this.cut('half-close-timeout'));
  }

  #closed(): void {
    this.#open -= 1;
    if (this.#open > 0) return;
    const { inward, outward, ended } = this.#parts;
    inward.release();
    outward.release();
    ended(this.#reason ?? 'closed');
  }
}
