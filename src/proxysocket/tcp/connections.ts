import type { BalancerEndpoint } from '../../roundrobin/endpoint.ts';
import type { Clock } from '../../util/clock.ts';
import type { PortRange } from '../../util/port-range.ts';
import { DeadlineQueue, type Deadline } from '../core/timers.ts';
import { kernelPortRange } from '../core/kernel-port.ts';
import type { LoopGuard } from '../core/loop-guard.ts';
import type { EngineContext, ServicePort } from '../core/service-port.ts';
import { Gate } from '../core/descriptors.ts';
import type { EngineLimits } from '../limits.ts';
import { HoldQueue, type HeldClient } from './hold-queue.ts';
import type { AcceptOwner, ByteCounters, TcpClient, TcpTransport } from './transport.ts';
import { EndpointIndex } from '../core/endpoint-index.ts';
import type { SharedServicePorts } from '../core/shared-service-ports.ts';

/** When keepalive is set on an endpoint's socket: four system calls that most connections end before. Milliseconds. */
const KEEPALIVE_AFTER_MS = 1000;

/** For a whole PROXY protocol header to arrive. Milliseconds. */
export const HEADER_TIMEOUT_MS = 5000;

export interface Timed extends HeldClient, Readonly<ByteCounters> {
  readonly socket: TcpClient;
  /** The running connection attempt timed out, or the client's header. */
  timedOut(timeoutMs: number): void;
  endpointGone(): void;
}

/** The connections of an engine, and what they share. */
export class TcpConnections {
  readonly transport: TcpTransport;
  readonly clock: Clock;
  readonly gate: Gate;
  readonly loops: LoopGuard;
  readonly ofShared: SharedServicePorts<AcceptOwner>;
  /** Every connection that has an endpoint, or is dialing one. */
  readonly index = new EndpointIndex<Timed>();
  readonly holds: HoldQueue;
  readonly headers: DeadlineQueue<Timed>;
  /** Relays that are too young for keepalive. */
  readonly young: DeadlineQueue<Timed>;
  /** Ports that the kernel chooses for our side; undefined when it does not say. */
  readonly kernelPorts: PortRange | undefined = kernelPortRange();
  /** Running attempts, with the time limit of each in turn. */
  attempts: readonly DeadlineQueue<Timed>[] = [];
  /** Relays whose endpoint was removed; undefined when they may live on without limit. */
  grace: DeadlineQueue<Timed> | undefined;
  halfClosed!: DeadlineQueue<HalfCloseWatch>;
  readonly #limits: EngineLimits;

  constructor(
    context: EngineContext,
    transport: TcpTransport,
    loops: LoopGuard,
    ofShared: SharedServicePorts<AcceptOwner>,
  ) {
    const { clock, limits, descriptors } = context;
    this.clock = clock;
    this.loops = loops;
    this.gate = new Gate('TCP', 'max-connections', () => limits.maxConnections, descriptors);
    this.holds = new HoldQueue(context);
    this.#limits = limits;
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
    const { connectTimeoutsMs, endpointGraceMs, halfCloseTimeoutMs } = this.#limits;
    this.attempts = connectTimeoutsMs.map((ms) => this.#timeouts(ms));
    this.grace =
      endpointGraceMs > 0
        ? new DeadlineQueue(this.clock, endpointGraceMs, ({ socket }) =>
            socket.reset('endpoint-gone'),
          )
        : undefined;
    this.halfClosed = new DeadlineQueue(
      this.clock,
      halfCloseTimeoutMs / HALF_CLOSE_LOOKS,
      (watch) => watch.look(),
    );
    this.holds.limitsChanged();
  }

  /** The endpoint was removed: attempts move on, relays end after the grace period. */
  endpointGone(endpoint: BalancerEndpoint): void {
    for (const connection of this.index.of(endpoint)) connection.endpointGone();
  }

  /** Established relays continue, as in kube-proxy's userspace mode; if `continues`, clients whose header is awaited, too. */
  servicePortGone(owner: ServicePort, continues: boolean): void {
    this.holds.servicePortGone(owner);
    if (continues) return;
    const ofOwner = [...this.headers].filter((each) => each.servicePort === owner.name);
    for (const client of ofOwner) client.reject('no-endpoint');
  }

  /** What waits for an endpoint, then what has one or is getting one, oldest first. Not to be kept. */
  *all(): Iterable<HeldClient> {
    yield* this.headers;
    yield* this.holds;
    yield* this.index;
  }

  /** Ends everything at once, when all listeners are closed. */
  async destroy(): Promise<void> {
    const connections = [...this.all()];
    for (const connection of connections) connection.destroy();
    await this.gate.empty();
    await this.transport.destroy();
  }

  /** What is due may have arrived during a pause, so sockets are polled first. */
  #timeouts(ms: number): DeadlineQueue<Timed> {
    return new DeadlineQueue(this.clock, ms, (connection) => connection.timedOut(ms), {
      afterSockets: this.transport.afterSockets,
    });
  }
}

/** The half-close time, as a number of checks. */
const HALF_CLOSE_LOOKS = 8;

/**
 * Resets a half-closed relay in which no bytes move any more: none was passed on, and the peer reads none that the
 * system has yet to send. It counts checks, so time in which the event loop was blocked does not count. A new limit
 * applies from the next check on.
 */
export class HalfCloseWatch {
  readonly #connections: TcpConnections;
  readonly #relay: TcpClient;
  #next: Deadline<HalfCloseWatch>;
  #idleLooks = 0;
  #arrived: number;

  constructor(connections: TcpConnections, relay: TcpClient) {
    this.#connections = connections;
    this.#relay = relay;
    // What is unsent costs two system calls.
    this.#arrived = relay.bytesIn + relay.bytesOut;
    this.#next = connections.halfClosed.add(this);
  }

  end(): void {
    this.#next.remove();
  }

  look(): void {
    const arrived = arrivedOf(this.#relay);
    this.#idleLooks = arrived === this.#arrived ? this.#idleLooks + 1 : 0;
    this.#arrived = arrived;
    if (this.#idleLooks < HALF_CLOSE_LOOKS) this.#next = this.#connections.halfClosed.add(this);
    else this.#relay.reset('half-close-timeout');
  }
}

/** Bytes that have reached the peers. */
function arrivedOf(relay: TcpClient): number {
  return relay.bytesIn + relay.bytesOut - relay.unsent();
}
