import type { RelayEnded } from '../events.ts';
import type { DeadlineQueue } from '../core/deadlines.ts';
import type { Direction } from './direction.ts';
import { whenFin } from './fin.ts';
import type { RelaySocket } from './relay-socket.ts';
import { resetSocket } from './reset.ts';
import { Silence } from './silence.ts';

export type RelayEnd = RelayEnded['reason'];

/** Who made a relay. */
export interface RelayOwner {
  /**
   * The endpoint's side broke before a byte went through, either way: nothing is lost if another
   * endpoint serves the client. Returns whether one is asked; then `use` follows, or `cut`.
   */
  endpointLost(error: Error): boolean;
  /** Called once, when both sockets are closed. */
  relayEnded(reason: RelayEnd): void;
}

/** What the relay of a client is made of. */
export interface RelayParts {
  readonly client: RelaySocket;
  /** From the client to the endpoint. */
  readonly inward: Direction;
  /** From the endpoint to the client. */
  readonly outward: Direction;
  /** `silences` looks at peers that have sent their FIN; it is replaced when the limit changes. */
  readonly times: { readonly silences: DeadlineQueue<Silence> };
  readonly owner: RelayOwner;
}

/**
 * The life of one established TCP relay.
 *
 * - A FIN is passed on behind the data before it; the other direction goes on.
 * - A side that has sent its FIN must take traffic: when nothing goes to it for the half-close limit,
 *   both sides are reset. Without this, a peer that never ends its half would hold the relay for ever.
 * - A reset, or any other error, of one side resets the other side; but an endpoint that breaks
 *   before anything went through may be replaced.
 */
export class Relay {
  readonly #parts: RelayParts;
  #endpoint: RelaySocket;
  #open = 1;
  #halfClosed = false;
  #reason: RelayEnd | undefined;

  constructor(parts: RelayParts, endpoint: RelaySocket) {
    this.#parts = parts;
    this.#endpoint = endpoint;
    const { client, inward } = parts;
    this.#watch(client, inward);
    client.on('error', () => this.cut('client-reset'));
    this.use(endpoint);
  }

  /** Relays to this endpoint, instead of one that was lost. The client is not being read now. */
  use(endpoint: RelaySocket): void {
    const { client, inward, outward } = this.#parts;
    this.#endpoint = endpoint;
    this.#open += 1;
    inward.join(client, endpoint);
    outward.join(endpoint, client);
    this.#watch(endpoint, outward);
    endpoint.on('error', (error) => this.#endpointFailed(error));
  }

  /** Lets TCP ask whether the endpoint is still there when it has been silent for `ms`. */
  keepAlive(ms: number): void {
    this.#endpoint.setKeepAlive(true, ms);
  }

  /** Resets both sides. Only the first reason counts. */
  cut(reason: RelayEnd): void {
    this.#reason ??= reason;
    resetSocket(this.#parts.client);
    resetSocket(this.#endpoint);
  }

  #watch(source: RelaySocket, direction: Direction): void {
    source.on('end', () => whenFin(source, () => this.#fin(source, direction)));
    source.on('close', () => this.#closed());
  }

  #endpointFailed(error: Error): void {
    const { client, inward, outward, owner } = this.#parts;
    const untouched = inward.bytes === 0 && outward.bytes === 0 && !this.#halfClosed;
    if (untouched && this.#reason === undefined && !client.destroyed) {
      inward.hold();
      if (owner.endpointLost(error)) return;
    }
    this.cut('endpoint-reset');
  }

  #fin(source: RelaySocket, direction: Direction): void {
    const last = this.#halfClosed;
    this.#halfClosed = true;
    direction.end(last);
    // With everything written, too, it is being closed.
    if (source.destroyed || source.writableFinished) return;
    const { inward, outward, times } = this.#parts;
    const towards = direction === inward ? outward : inward;
    const silence = new Silence(times.silences, source, towards, () =>
      this.cut('half-close-timeout'),
    );
    source.on('close', () => silence.stop());
  }

  #closed(): void {
    this.#open -= 1;
    if (this.#open > 0) return;
    const { inward, outward, owner } = this.#parts;
    inward.release();
    outward.release();
    owner.relayEnded(this.#reason ?? 'closed');
  }
}
