import { setImmediate } from 'node:timers/promises';
import type { BalancerEndpoint } from '../../roundrobin/endpoint.ts';
import type { Clock } from '../../util/clock.ts';
import { DeadlineQueue, type Deadline } from '../core/timers.ts';
import { kernelPortRange } from '../core/kernel-port.ts';
import { LimitSignal } from '../core/limit-signal.ts';
import type { LoopGuard } from '../core/loop-guard.ts';
import type { EngineContext, ServicePort } from '../core/service-port.ts';
import { Gate } from '../core/descriptors.ts';
import { rejectReason, type RejectReason } from '../counters.ts';
import { tcpHeld, tcpHoldEnded, type TcpHoldEnded } from '../events.ts';
import type { Inspectable } from '../inspect.ts';
import type { Traffic } from '../spec.ts';
import type { AcceptOwner, ByteCounters, TcpClient, TcpTransport } from './transport.ts';
import { EndpointIndex, type IndexEntry } from '../core/endpoint-index.ts';
import type { SharedServicePorts } from '../core/shared-service-ports.ts';

/** When keepalive is set on an endpoint's socket: four system calls that most connections end before. Milliseconds. */
const KEEPALIVE_AFTER_MS = 1000;

/** For a whole PROXY protocol header to arrive. Milliseconds. */
export const HEADER_TIMEOUT_MS = 5000;

/** The half-close time, as a number of checks. */
export const HALF_CLOSE_LOOKS = 8;

/** Number of held clients released at once: connecting them takes some milliseconds. */
const AT_ONCE = 64;
/** Pause between two batches, for other connections. Milliseconds. */
const PAUSE_MS = 1;

/** Held clients per descriptor. Each uses two, so they have at most half, and other clients still get in. */
const HELD_PER_DESCRIPTOR = 1 / 4;

type HoldEnd = TcpHoldEnded['reason'];

/** A connection, as its queues see it. */
export interface Queued extends Inspectable, Readonly<ByteCounters> {
  readonly owner: ServicePort;
  readonly traffic: Traffic;
  readonly socket: TcpClient;
  /** The client's `ip:port`; empty when it has disconnected before this was first read. */
  readonly remoteAddress: string;
  /** When it was first held, on the clock. */
  heldSince: number | undefined;
  /** While it is held. */
  hold: { readonly deadline: Deadline<Queued>; readonly entry: IndexEntry } | undefined;
  /** The running connection attempt timed out, or the client's header. */
  timedOut(timeoutMs: number): void;
  /** Checks whether a half-closed relay still moves bytes. */
  look(): void;
  endpointGone(): void;
  endpointThere(): void;
  reject(reason: RejectReason): void;
  destroy(): void;
}

/** The connections of an engine, and what they share. */
export class TcpConnections {
  readonly transport: TcpTransport;
  readonly clock: Clock;
  readonly gate: Gate;
  readonly loops: LoopGuard;
  readonly ofShared: SharedServicePorts<AcceptOwner>;
  /** Every connection that has an endpoint, or is dialing one. */
  readonly index = new EndpointIndex<Queued>();
  readonly headers: DeadlineQueue<Queued>;
  /** Relays that are too young for keepalive. */
  readonly young: DeadlineQueue<Queued>;
  /** Running attempts, with the time limit of each in turn. */
  attempts: readonly DeadlineQueue<Queued>[] = [];
  /** Relays whose endpoint was removed; undefined when they may live on without limit. */
  grace: DeadlineQueue<Queued> | undefined;
  halfClosed!: DeadlineQueue<Queued>;
  readonly #context: EngineContext;
  /** Ports that the kernel chooses for our side; undefined when it does not say. */
  readonly #kernelPorts = kernelPortRange();
  /** Clients of service ports without endpoints, by service port. */
  readonly #held = new EndpointIndex<Queued, ServicePort>();
  readonly #heldSignal = new LimitSignal('max-held-connections', () => this.#mostHeld);
  /** Undefined when clients are not held. */
  #holds: DeadlineQueue<Queued> | undefined;

  constructor(
    context: EngineContext,
    transport: TcpTransport,
    loops: LoopGuard,
    ofShared: SharedServicePorts<AcceptOwner>,
  ) {
    const { clock, limits, descriptors } = context;
    this.#context = context;
    this.clock = clock;
    this.loops = loops;
    this.gate = new Gate('TCP', 'max-connections', () => limits.maxConnections, descriptors);
    this.transport = transport;
    this.ofShared = ofShared;
    this.headers = this.#timeouts(HEADER_TIMEOUT_MS);
    this.young = new DeadlineQueue(clock, KEEPALIVE_AFTER_MS, ({ socket }) =>
      socket.keepAlive(limits.keepAliveMs),
    );
    this.limitsChanged();
  }

  /** Queued items stay in their queue. */
  limitsChanged(): void {
    const { connectTimeoutsMs, endpointGraceMs, halfCloseTimeoutMs, holdTimeoutMs } =
      this.#context.limits;
    const queue = (ms: number, due: (each: Queued) => void) =>
      ms > 0 ? new DeadlineQueue(this.clock, ms, due) : undefined;
    this.attempts = connectTimeoutsMs.map((ms) => this.#timeouts(ms));
    this.grace = queue(endpointGraceMs, ({ socket }) => socket.reset('endpoint-gone'));
    this.#holds = queue(holdTimeoutMs, (each) =>
      this.#rejectHeld(each, 'hold-timeout', 'hold-timeout'),
    );
    this.halfClosed = new DeadlineQueue(this.clock, halfCloseTimeoutMs / HALF_CLOSE_LOOKS, (each) =>
      each.look(),
    );
  }

  /** Whether the kernel may choose this port for our side. */
  mayChoose(port: number): boolean {
    const ports = this.#kernelPorts;
    return ports === undefined || (port >= ports.first && port <= ports.last);
  }

  /** The endpoint was removed: attempts move on, relays end after the grace period. */
  endpointGone(endpoint: BalancerEndpoint): void {
    for (const connection of this.index.of(endpoint)) connection.endpointGone();
  }

  /** The endpoints of a service port have changed: releases the clients for which there is one, the oldest first. */
  endpointsChanged(owner: ServicePort): void {
    let left = AT_ONCE;
    for (const client of this.#held.of(owner)) {
      if (owner.balancer.serves(client.traffic)) {
        if (left === 0) {
          // Endpoints may change again meanwhile.
          this.clock.setTimer(PAUSE_MS, () => this.endpointsChanged(owner));
          return;
        }
        left -= 1;
        this.endHold(client, 'endpoint');
        client.endpointThere();
      } else if (rejectReason(owner, client.traffic, 'no-endpoint') === 'drained') {
        this.#rejectHeld(client, 'drained', 'drained');
      }
    }
  }

  /** Established relays continue, as in kube-proxy's userspace mode; if `continues`, clients whose header is awaited, too. */
  servicePortGone(owner: ServicePort, continues: boolean): void {
    owner.isGone = true;
    for (const each of this.#held.of(owner)) this.#rejectHeld(each, 'service-gone', 'no-endpoint');
    if (continues) return;
    const ofOwner = [...this.headers].filter((each) => each.owner.name === owner.name);
    for (const client of ofOwner) client.reject('no-endpoint');
  }

  /**
   * Holds the client of a service port without endpoints, if there is a hold timeout: until an endpoint is added, the
   * client leaves, its time has expired, or its service port is removed. Otherwise returns why it is rejected.
   */
  hold(client: Queued): RejectReason | undefined {
    const { owner, heldSince } = client;
    const holds = this.#holds;
    if (holds === undefined || owner.isGone === true) return 'no-endpoint';
    if (owner.balancer.serves(client.traffic)) return 'no-endpoint';
    const now = this.clock.now();
    if (heldSince !== undefined && now - heldSince >= holds.ms) return 'hold-timeout';
    if (this.#held.size >= this.#mostHeld) {
      this.#heldSignal.refused();
      return 'limit';
    }
    // Not only for subscribers: it is not known any more once the client has left.
    const { remoteAddress } = client;
    client.hold = { deadline: holds.add(client, now), entry: this.#held.add(owner, client) };
    owner.counters.held += 1;
    if (heldSince === undefined) owner.counters.heldTotal += 1;
    client.heldSince ??= now;
    const { name: servicePort, counters } = owner;
    if (tcpHeld.hasSubscribers)
      tcpHeld.publish({ servicePort, remoteAddress, waiting: counters.held });
    return undefined;
  }

  /** Idempotent: only the first reason counts. */
  endHold(client: Queued, reason: HoldEnd): void {
    const { owner, hold } = client;
    if (hold === undefined) return;
    client.hold = undefined;
    hold.deadline.remove();
    hold.entry.remove();
    this.#heldSignal.freed(this.#held.size);
    owner.counters.held -= 1;
    if (!tcpHoldEnded.hasSubscribers) return;
    const durationMs = this.clock.now() - hold.deadline.since;
    const { name: servicePort, counters } = owner;
    const { remoteAddress } = client;
    tcpHoldEnded.publish({
      servicePort,
      remoteAddress,
      waiting: counters.held,
      durationMs,
      reason,
    });
  }

  /** What waits for an endpoint, then what has one or is getting one, oldest first. Not to be kept. */
  *all(): Iterable<Queued> {
    yield* this.headers;
    yield* this.#held;
    yield* this.index;
  }

  /** Ends everything at once, when all listeners are closed. */
  async destroy(): Promise<void> {
    const connections = [...this.all()];
    for (const connection of connections) connection.destroy();
    await this.gate.empty();
    // Node closes the last handles in the next turn of its loop.
    await setImmediate();
  }

  #rejectHeld(client: Queued, end: HoldEnd, reason: RejectReason): void {
    this.endHold(client, end);
    client.reject(reason);
  }

  get #mostHeld(): number {
    const { limits, descriptors } = this.#context;
    const share = Math.floor(descriptors.capacity * HELD_PER_DESCRIPTOR);
    return Math.min(limits.maxHeldConnections, share);
  }

  #timeouts(ms: number): DeadlineQueue<Queued> {
    return new DeadlineQueue(this.clock, ms, (connection) => connection.timedOut(ms));
  }
}
