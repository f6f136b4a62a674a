import type { Clock } from '../../util/clock.ts';
import type { PortRange } from '../../util/port-range.ts';
import { DeadlineQueue } from '../core/timers.ts';
import { kernelPortRange } from '../core/kernel-port.ts';
import type { LoopGuard } from '../core/loop-guard.ts';
import type { EngineContext } from '../core/service-port.ts';
import { Gate } from '../core/gate.ts';
import type { EngineLimits } from '../limits.ts';
import { HALF_CLOSE_LOOKS, type HalfCloseWatch } from './half-close.ts';
import { HoldQueue, type HeldClient } from './hold-queue.ts';
import type { TcpTransport, TcpRelay } from './transport.ts';
import { EndpointIndex } from '../core/endpoint-index.ts';

/**
 * When keepalive is set on the socket of an endpoint, after it was connected: that takes four system calls, and
 * most connections do not last so long. Milliseconds.
 */
const KEEPALIVE_AFTER_MS = 1000;

/** For a whole PROXY protocol header to arrive. Milliseconds. */
export const HEADER_TIMEOUT_MS = 5000;

/** A connection as indexes and timers know it. */
export interface Timed extends HeldClient {
  /** Set once an endpoint has accepted the connection. */
  readonly relay: TcpRelay | undefined;
  /** The running connection attempt timed out, or the client's header. */
  timedOut(timeoutMs: number): void;
  endpointGone(): void;
}

/** One attempt to connect that a client gets. */
interface AttemptTime {
  readonly timeoutMs: number;
  /** Connections whose attempt is running. */
  readonly running: DeadlineQueue<Timed>;
}

/** What all TCP connections of an engine share. */
export class TcpShared {
  readonly clock: Clock;
  readonly gate: Gate;
  /** Finds endpoints that loop back to their service port. */
  readonly loops: LoopGuard;
  /** Every connection that has an endpoint, or is dialing one. */
  readonly index = new EndpointIndex<Timed>();
  /** Clients that wait for an endpoint. */
  readonly holds: HoldQueue;
  /** Clients whose PROXY protocol header is awaited. */
  readonly headers: DeadlineQueue<Timed>;
  /** Relays that are too young for keepalive. */
  readonly young: DeadlineQueue<Timed>;
  /** Ports that the kernel chooses for our side; undefined when it does not say. */
  readonly kernelPorts: PortRange | undefined = kernelPortRange();
  /** The connection attempts for a client, in order. */
  attempts: readonly AttemptTime[] = [];
  /** Relays whose endpoint was removed; undefined when they may live on without limit. */
  grace: DeadlineQueue<Timed> | undefined;
  /** Half-closed relays until their next check. */
  halfClosed!: DeadlineQueue<HalfCloseWatch>;
  readonly #limits: EngineLimits;
  readonly #transport: TcpTransport;

  constructor(context: EngineContext, transport: TcpTransport, loops: LoopGuard) {
    const { clock, limits, descriptors } = context;
    this.clock = clock;
    this.loops = loops;
    this.gate = new Gate('TCP', 'max-connections', () => limits.maxConnections, descriptors);
    this.holds = new HoldQueue(context);
    this.#limits = limits;
    this.#transport = transport;
    this.headers = this.#timeouts(HEADER_TIMEOUT_MS);
    this.young = new DeadlineQueue(clock, KEEPALIVE_AFTER_MS, ({ relay }) =>
      relay?.keepAlive(limits.keepAliveMs),
    );
    this.limitsChanged();
  }

  /** Queued items stay in their queue. */
  limitsChanged(): void {
    const { connectTimeoutsMs, endpointGraceMs, halfCloseTimeoutMs } = this.#limits;
    this.attempts = connectTimeoutsMs.map((timeoutMs) => ({
      timeoutMs,
      running: this.#timeouts(timeoutMs),
    }));
    this.grace =
      endpointGraceMs > 0
        ? new DeadlineQueue(this.clock, endpointGraceMs, ({ relay }) =>
            relay?.reset('endpoint-gone'),
          )
        : undefined;
    this.halfClosed = new DeadlineQueue(
      this.clock,
      halfCloseTimeoutMs / HALF_CLOSE_LOOKS,
      (watch) => watch.look(),
    );
    this.holds.limitsChanged();
  }

  /** What is due may have arrived during a pause, so sockets are polled first. */
  #timeouts(ms: number): DeadlineQueue<Timed> {
    return new DeadlineQueue(this.clock, ms, (connection) => connection.timedOut(ms), {
      afterSockets: (callback) => this.#transport.afterSockets(callback),
    });
  }
}
