import type { Clock } from '../../util/clock.ts';
import { LinkedList, type ListNode } from '../../util/linked-list.ts';
import { rejectReason, type RejectReason } from '../counters.ts';
import { tcpHeld, tcpHoldEnded, type TcpHoldEnded } from '../events.ts';
import type { ConnectionSnapshot, Inspectable } from '../inspect.ts';
import { LimitSignal } from '../core/limit-signal.ts';
import { LIMIT_NAMES, type EngineLimits } from '../limits.ts';
import type { DescriptorBudget, EngineContext, ServicePort } from '../core/service-port.ts';
import type { Traffic } from '../spec.ts';
import { DeadlineQueue, type Deadline } from '../core/deadlines.ts';

export type HoldEnd = TcpHoldEnded['reason'];

/** Clients that are sent on in one go: connecting them takes some milliseconds. */
const AT_ONCE = 64;
/** How long others have their turn before the next ones. Milliseconds. */
const PAUSE_MS = 1;

/**
 * Held clients have no more than this part of the descriptors, at two for each, so that those of services
 * without endpoints cannot keep everybody else out.
 */
const PART_OF_DESCRIPTORS = 1 / 2;
const DESCRIPTORS_PER_CLIENT = 2;

/** An accepted client that can wait until there is an endpoint for it. */
export interface HeldClient extends Inspectable {
  readonly traffic: Traffic;
  /** The client's `ip:port`; empty when it is gone. */
  readonly remoteAddress: string;
  /** When it began to wait for the first time, on the clock. */
  readonly heldSince: number | undefined;
  /** There is an endpoint: the wait is over. */
  endpointThere(): void;
  /** It has waited in vain. */
  turnAway(reason: RejectReason): void;
  destroy(): void;
}

/** The wait of one client. */
export class Stay {
  readonly client: HeldClient;
  readonly owner: ServicePort;
  /** On the clock. */
  readonly since: number;
  readonly #remoteAddress: string;
  readonly #room: WaitingRoom;
  readonly #place: ListNode<Stay>;
  #deadline: Deadline<Stay> | undefined;

  constructor(room: WaitingRoom, client: HeldClient, owner: ServicePort, list: LinkedList<Stay>) {
    this.#room = room;
    this.client = client;
    this.owner = owner;
    this.#remoteAddress = client.remoteAddress;
    this.#place = list.add(this);
    this.since = room.clock.now();
    owner.counters.held += 1;
    if (client.heldSince === undefined) owner.counters.heldTotal += 1;
    if (tcpHeld.hasSubscribers) tcpHeld.publish(this.#who(list.size));
  }

  /** Starts the time that it may last. */
  limit(queue: DeadlineQueue<Stay>): void {
    this.#deadline = queue.add(this);
  }

  /** The wait is over. Idempotent: only the first reason counts. */
  end(reason: HoldEnd): void {
    if (this.#deadline === undefined) return;
    this.#deadline.remove();
    this.#deadline = undefined;
    this.#place.remove();
    this.owner.counters.held -= 1;
    const waiting = this.#room.left(this.owner);
    if (!tcpHoldEnded.hasSubscribers) return;
    const durationMs = this.#room.clock.now() - this.since;
    tcpHoldEnded.publish({ ...this.#who(waiting), durationMs, reason });
  }

  /** What is told of the client while it waits. */
  inspect(): ConnectionSnapshot {
    return {
      servicePort: this.owner.name,
      protocol: 'TCP',
      client: this.#remoteAddress,
      endpoint: '',
      state: 'held',
      ageMs: this.#room.clock.now() - this.since,
      in: 0,
      out: 0,
    };
  }

  #who(waiting: number): { servicePort: string; remoteAddress: string; waiting: number } {
    return { servicePort: this.owner.name, remoteAddress: this.#remoteAddress, waiting };
  }
}

/**
 * Where TCP clients of service ports without endpoints wait for one, when there is a hold timeout.
 *
 * Nothing is looked at again and again: a client leaves when an endpoint comes, when it goes away itself,
 * when its time is over (one timer for all of them), or when its service port goes.
 */
export class WaitingRoom implements Iterable<HeldClient> {
  readonly clock: Clock;
  readonly #limits: Pick<EngineLimits, 'holdTimeoutMs' | 'maxHeldConnections'>;
  readonly #descriptors: Pick<DescriptorBudget, 'capacity'>;
  readonly #signal: LimitSignal;
  readonly #waiting = new Map<ServicePort, LinkedList<Stay>>();
  /** Those whose clients are being sent on, bundle by bundle. */
  readonly #waking = new Set<ServicePort>();
  readonly #gone = new WeakSet<ServicePort>();
  #timeouts: DeadlineQueue<Stay> | undefined;
  #size = 0;

  /** The limits may change; `limitsChanged` has to follow. */
  constructor({ clock, limits, descriptors }: EngineContext) {
    this.clock = clock;
    this.#limits = limits;
    this.#descriptors = descriptors;
    this.#signal = new LimitSignal(LIMIT_NAMES.maxHeldConnections, () => this.#most);
    this.limitsChanged();
  }

  /** Clients that wait. */
  get size(): number {
    return this.#size;
  }

  /** Those who wait already keep their time. */
  limitsChanged(): void {
    const { holdTimeoutMs } = this.#limits;
    this.#timeouts =
      holdTimeoutMs > 0
        ? new DeadlineQueue(this.clock, holdTimeoutMs, (stay) => {
            stay.end('hold-timeout');
            stay.client.turnAway('hold-timeout');
          })
        : undefined;
  }

  /**
   * Lets a client wait that found no endpoint; else why it has to be turned away. Not where there are
   * endpoints, all of which the client has tried: no other one may ever come. Nor where the service port is
   * gone, whose listeners close some time after: none will come.
   *
   * A client whose endpoint has gone again gets the whole time once more, unless that is over since it has begun
   * to wait: with endpoints that come and go it could wait for ever.
   */
  enter(client: HeldClient, owner: ServicePort): Stay | RejectReason {
    const timeouts = this.#timeouts;
    if (timeouts === undefined || owner.balancer.serves(client.traffic)) return 'no-endpoint';
    if (this.#gone.has(owner)) return 'no-endpoint';
    if (this.#isOverdue(client)) return 'hold-timeout';
    if (this.#size >= this.#most) {
      this.#signal.refused();
      return 'limit';
    }
    let list = this.#waiting.get(owner);
    if (list === undefined) this.#waiting.set(owner, (list = new LinkedList()));
    this.#size += 1;
    const stay = new Stay(this, client, owner, list);
    stay.limit(timeouts);
    return stay;
  }

  /** A stay has ended; returns how many clients of its service port still wait. */
  left(owner: ServicePort): number {
    this.#size -= 1;
    this.#signal.freed(this.#size);
    const waiting = this.#waiting.get(owner)?.size ?? 0;
    if (waiting === 0) this.#waiting.delete(owner);
    return waiting;
  }

  /** The endpoints of a service port are others now: sends those on for whom there is one. */
  endpointsChanged(owner: ServicePort): void {
    if (this.#waiting.has(owner) && !this.#waking.has(owner)) this.#wake(owner);
  }

  /** The service port takes nobody any more, ever. */
  servicePortGone(owner: ServicePort): void {
    this.#gone.add(owner);
    for (const stay of this.#of(owner)) {
      stay.end('service-gone');
      stay.client.turnAway('no-endpoint');
    }
  }

  /** Those who wait, service port by service port. */
  *[Symbol.iterator](): Generator<HeldClient, void, void> {
    for (const list of this.#waiting.values()) for (const { client } of list) yield client;
  }

  #isOverdue({ heldSince }: HeldClient): boolean {
    return heldSince !== undefined && this.clock.now() - heldSince >= this.#limits.holdTimeoutMs;
  }

  get #most(): number {
    const share = (this.#descriptors.capacity * PART_OF_DESCRIPTORS) / DESCRIPTORS_PER_CLIENT;
    return Math.min(this.#limits.maxHeldConnections, Math.floor(share));
  }

  #of(owner: ServicePort): readonly Stay[] {
    return [...(this.#waiting.get(owner) ?? [])];
  }

  /** The oldest first. What there is may change again between bundles. */
  #wake(owner: ServicePort): void {
    let left = AT_ONCE;
    for (const stay of this.#of(owner)) {
      const { client } = stay;
      if (owner.balancer.serves(client.traffic)) {
        if (left === 0) {
          this.#wakeLater(owner);
          return;
        }
        left -= 1;
        stay.end('endpoint');
        client.endpointThere();
      } else if (rejectReason(owner, client.traffic, 'no-endpoint') === 'drained') {
        stay.end('drained');
        client.turnAway('drained');
      }
    }
  }

  #wakeLater(owner: ServicePort): void {
    this.#waking.add(owner);
    this.clock.setTimer(PAUSE_MS, () => {
      this.#waking.delete(owner);
      this.#wake(owner);
    });
  }
}
