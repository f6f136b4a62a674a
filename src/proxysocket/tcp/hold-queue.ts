import type { Clock } from '../../util/clock.ts';
import { rejectReason, type RejectReason } from '../counters.ts';
import { tcpHeld, tcpHoldEnded, type TcpHoldEnded } from '../events.ts';
import type { Inspectable } from '../inspect.ts';
import { type ProcessDescriptors } from '../core/descriptors.ts';
import { LimitSignal } from '../core/limit-signal.ts';
import { LIMIT_NAMES, type EngineLimits } from '../limits.ts';
import type { EngineContext, ServicePort } from '../core/service-port.ts';
import type { Traffic } from '../spec.ts';
import { DeadlineQueue, type Deadline } from '../core/timers.ts';

type HoldEnd = TcpHoldEnded['reason'];

/** Number of clients released at once: connecting them takes some milliseconds. */
const AT_ONCE = 64;
/** Pause between two batches, for other connections. Milliseconds. */
const PAUSE_MS = 1;

/** Held clients per descriptor. Each uses two, so they have at most half, and other clients still get in. */
const HELD_PER_DESCRIPTOR = 1 / 4;

export interface HeldClient extends Inspectable {
  readonly owner: ServicePort;
  readonly traffic: Traffic;
  /** The client's `ip:port`; empty when it has disconnected before this was first read. */
  readonly remoteAddress: string;
  /** When it was first held, on the clock. Only the queue writes it. */
  heldSince: number | undefined;
  /** While it is held. Only the queue writes it. */
  hold: Deadline<HeldClient> | undefined;
  endpointThere(): void;
  reject(reason: RejectReason): void;
  destroy(): void;
}

/**
 * Holds TCP clients of service ports without endpoints, if there is a hold timeout: until an endpoint is added, the
 * client leaves, its time has expired, or its service port is removed.
 */
export class HoldQueue implements Iterable<HeldClient> {
  readonly #clock: Clock;
  readonly #limits: Pick<EngineLimits, 'holdTimeoutMs' | 'maxHeldConnections'>;
  readonly #descriptors: Pick<ProcessDescriptors, 'capacity'>;
  readonly #signal: LimitSignal;
  readonly #waiting = new Map<ServicePort, Set<HeldClient>>();
  #timeouts: DeadlineQueue<HeldClient> | undefined;
  #size = 0;

  constructor({ clock, limits, descriptors }: EngineContext) {
    this.#clock = clock;
    this.#limits = limits;
    this.#descriptors = descriptors;
    this.#signal = new LimitSignal(LIMIT_NAMES.maxHeldConnections, () => this.#most);
    this.limitsChanged();
  }

  /** Held clients keep their timeout. */
  limitsChanged(): void {
    const { holdTimeoutMs } = this.#limits;
    this.#timeouts =
      holdTimeoutMs > 0
        ? new DeadlineQueue(this.#clock, holdTimeoutMs, (client) => {
            this.#reject(client, 'hold-timeout', 'hold-timeout');
          })
        : undefined;
  }

  /**
   * Holds a client that found no endpoint, or returns why it is rejected: it has tried all endpoints, or the
   * service port was removed and its listeners are about to close.
   *
   * A client whose endpoint was removed again gets the whole time again, unless that has passed since it was first
   * held: with flapping endpoints it could be held forever.
   */
  enter(client: HeldClient): RejectReason | undefined {
    const timeouts = this.#timeouts;
    const { owner, heldSince } = client;
    if (timeouts === undefined || owner.isGone === true) return 'no-endpoint';
    if (owner.balancer.serves(client.traffic)) return 'no-endpoint';
    const now = this.#clock.now();
    if (heldSince !== undefined && now - heldSince >= timeouts.ms) return 'hold-timeout';
    if (this.#size >= this.#most) {
      this.#signal.refused();
      return 'limit';
    }
    // Not only for subscribers: it is not known any more once the client has left.
    const { remoteAddress } = client;
    let held = this.#waiting.get(owner);
    if (held === undefined) this.#waiting.set(owner, (held = new Set()));
    held.add(client);
    client.hold = timeouts.add(client, now);
    this.#size += 1;
    owner.counters.held += 1;
    if (heldSince === undefined) owner.counters.heldTotal += 1;
    client.heldSince ??= now;
    if (tcpHeld.hasSubscribers)
      tcpHeld.publish({ servicePort: owner.name, remoteAddress, waiting: held.size });
    return undefined;
  }

  /** Idempotent: only the first reason counts. */
  end(client: HeldClient, reason: HoldEnd): void {
    const { owner, hold } = client;
    const held = this.#waiting.get(owner);
    if (held === undefined || hold === undefined) return;
    client.hold = undefined;
    hold.remove();
    held.delete(client);
    if (held.size === 0) this.#waiting.delete(owner);
    this.#size -= 1;
    this.#signal.freed(this.#size);
    owner.counters.held -= 1;
    if (!tcpHoldEnded.hasSubscribers) return;
    const { remoteAddress } = client;
    const ended = { servicePort: owner.name, remoteAddress, waiting: held.size };
    tcpHoldEnded.publish({ ...ended, durationMs: this.#clock.now() - hold.since, reason });
  }

  /** The endpoints of a service port have changed: releases the clients for which there is one, the oldest first. */
  endpointsChanged(owner: ServicePort): void {
    let left = AT_ONCE;
    for (const client of this.#of(owner)) {
      if (owner.balancer.serves(client.traffic)) {
        if (left === 0) {
          // Endpoints may change again meanwhile.
          this.#clock.setTimer(PAUSE_MS, () => this.endpointsChanged(owner));
          return;
        }
        left -= 1;
        this.end(client, 'endpoint');
        client.endpointThere();
      } else if (rejectReason(owner, client.traffic, 'no-endpoint') === 'drained') {
        this.#reject(client, 'drained', 'drained');
      }
    }
  }

  servicePortGone(owner: ServicePort): void {
    owner.isGone = true;
    for (const client of this.#of(owner)) this.#reject(client, 'service-gone', 'no-endpoint');
  }

  *[Symbol.iterator](): Generator<HeldClient, void, void> {
    for (const held of this.#waiting.values()) yield* held;
  }

  #reject(client: HeldClient, end: HoldEnd, reason: RejectReason): void {
    this.end(client, end);
    client.reject(reason);
  }

  get #most(): number {
    const share = Math.floor(this.#descriptors.capacity * HELD_PER_DESCRIPTOR);
    return Math.min(this.#limits.maxHeldConnections, share);
  }

  #of(owner: ServicePort): readonly HeldClient[] {
    return [...(this.#waiting.get(owner) ?? [])];
  }
}
