import type { Inspectable } from '../inspect.ts';
import type { Clock } from '../../util/clock.ts';
import type { PortRange } from '../../util/port-range.ts';
import { DeadlineQueue, IdleLanes, type IdleEntry } from '../core/timers.ts';
import { kernelPortRange } from '../core/kernel-port.ts';
import type { LoopGuard } from '../core/loop-guard.ts';
import type { EngineContext, DescriptorBudget } from '../core/service-port.ts';
import type { EngineLimits } from '../limits.ts';
import { HeaderReader } from './header-reader.ts';
import { HoldQueue } from './hold-queue.ts';
import type { TcpTransport, TcpRelay } from './transport.ts';
import { LimitSignal } from '../core/limit-signal.ts';
import { EndpointIndex } from '../core/endpoint-index.ts';

/** The half-close time, as a number of checks. */
const LOOKS = 8;

/** A relay of which one side has sent its FIN. Only `HalfCloseWatchdog` writes these fields. */
export interface HalfClosed extends IdleEntry<HalfClosed> {
  /** Consecutive checks that found nothing moved. */
  idleLooks: number;
  /** Bytes passed on, both ways, at the last check. */
  seenBytes: number;
  /** Unsent bytes at the last check; undefined while bytes were passed on. */
  seenUnsent: number | undefined;
  readonly relay: TcpRelay | undefined;
  halfCloseTimeout(): void;
}

/**
 * Resets half-closed relays in which no bytes move any more: checks at intervals whether bytes were passed on, or a
 * slow peer reads what the system has yet to send.
 *
 * Counting checks instead of measuring time leaves out the time in which the event loop was blocked, which is not
 * the peer's fault. A new limit applies from the next check on.
 */
export class HalfCloseWatchdog {
  readonly #lanes: IdleLanes<HalfClosed>;

  constructor(clock: Clock, limits: Pick<EngineLimits, 'halfCloseTimeoutMs'>) {
    this.#lanes = new IdleLanes<HalfClosed>(
      clock,
      () => limits.halfCloseTimeoutMs / LOOKS,
      (entry) => this.#check(entry),
    );
  }

  add(entry: HalfClosed): void {
    const { relay } = entry;
    if (relay === undefined) return;
    entry.idleLooks = 0;
    entry.seenBytes = relay.bytesIn + relay.bytesOut;
    entry.seenUnsent = undefined;
    this.#lanes.touch(entry);
  }

  remove(entry: HalfClosed): void {
    this.#lanes.remove(entry);
  }

  #check(entry: HalfClosed): void {
    if (entry.relay === undefined || this.#moves(entry, entry.relay)) entry.idleLooks = 0;
    else entry.idleLooks += 1;
    this.#lanes.touch(entry);
    if (entry.idleLooks < LOOKS) return;
    this.#lanes.remove(entry);
    entry.halfCloseTimeout();
  }

  /** Reads unsent bytes only when no byte was passed on: that costs two system calls. */
  #moves(entry: HalfClosed, relay: TcpRelay): boolean {
    const bytes = relay.bytesIn + relay.bytesOut;
    if (bytes !== entry.seenBytes) {
      entry.seenBytes = bytes;
      entry.seenUnsent = undefined;
      return true;
    }
    const before = entry.seenUnsent;
    entry.seenUnsent = relay.unsent();
    return before !== undefined && entry.seenUnsent < before;
  }
}

/** One for the client and one for the endpoint. */
const DESCRIPTORS_PER_CONNECTION = 2;

/**
 * Admits connections up to a limit, and as far as there are descriptors.
 *
 * Node accepts on its own and cannot leave connections in the kernel's backlog, so a connection that is not
 * admitted has been accepted and must be reset.
 */
export class ConnectionGate {
  readonly #limits: Pick<EngineLimits, 'maxConnections'>;
  readonly #descriptors: DescriptorBudget;
  readonly #signal: LimitSignal;
  #inside = 0;
  #waiting: (() => void)[] = [];

  /** The limit may change. */
  constructor(limits: Pick<EngineLimits, 'maxConnections'>, descriptors: DescriptorBudget) {
    this.#limits = limits;
    this.#descriptors = descriptors;
    this.#signal = new LimitSignal('max-connections', () => limits.maxConnections);
  }

  /** Admitted connections that have not ended. */
  get inside(): number {
    return this.#inside;
  }

  enter(): boolean {
    if (this.#inside >= this.#limits.maxConnections) {
      this.#signal.refused();
      return false;
    }
    if (!this.#descriptors.acquire(DESCRIPTORS_PER_CONNECTION)) return false;
    this.#inside += 1;
    return true;
  }

  leave(): void {
    this.#inside -= 1;
    this.#descriptors.release(DESCRIPTORS_PER_CONNECTION);
    this.#signal.freed(this.#inside);
    if (this.#inside > 0) return;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }

  /** Resolves when no connection is left. */
  async empty(): Promise<void> {
    if (this.#inside === 0) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.push(resolve);
    await promise;
  }
}

/**
 * When keepalive is set on the socket of an endpoint, after it was connected: that takes four system calls, and
 * most connections do not last so long. Milliseconds.
 */
const KEEPALIVE_AFTER_MS = 1000;

/** A connection as indexes and timers know it. */
export interface Timed extends Inspectable {
  /** Set once an endpoint has accepted the connection. */
  readonly relay: TcpRelay | undefined;
  /** The running connection attempt timed out. */
  timedOut(timeoutMs: number): void;
  /** The relay has lasted long enough to be probed. */
  keepAlive(): void;
  endpointGone(): void;
  /** The grace period of the relay has ended. */
  graceOver(): void;
  destroy(): void;
}

/** One attempt to connect that a client gets. */
interface AttemptTime {
  readonly timeoutMs: number;
  /** Connections whose attempt is running. */
  readonly running: DeadlineQueue<Timed>;
}

/** What all TCP connections of an engine share. */
export interface TcpShared extends TcpTimes {
  readonly clock: Clock;
  readonly limits: EngineLimits;
  readonly gate: ConnectionGate;
  /** Finds endpoints that loop back to their service port. */
  readonly loops: LoopGuard;
  /** Every connection that has an endpoint, or is dialing one. */
  readonly index: EndpointIndex<Timed>;
  /** Clients that wait for an endpoint. */
  readonly holds: HoldQueue;
  readonly halfClosed: HalfCloseWatchdog;
  /** Limits for clients that send a PROXY protocol header. */
  readonly headers: HeaderReader;
  /** Relays that are too young for keepalive. */
  readonly young: DeadlineQueue<Timed>;
  /** Ports that the kernel chooses for our side; undefined when it does not say. */
  readonly kernelPorts: PortRange | undefined;
}

/** Replaced when limits change; queued items stay in their queue. */
interface TcpTimes {
  /** The connection attempts for a client, in order. */
  attempts: readonly AttemptTime[];
  /** Relays whose endpoint was removed; undefined when they may live on without limit. */
  grace: DeadlineQueue<Timed> | undefined;
}

/** What the limits say of times now. */
export function tcpTimes(
  { clock, limits }: Pick<EngineContext, 'clock' | 'limits'>,
  transport: TcpTransport,
): TcpTimes {
  const { connectTimeoutsMs, endpointGraceMs } = limits;
  return {
    attempts: connectTimeoutsMs.map((timeoutMs) => ({
      timeoutMs,
      running: new DeadlineQueue<Timed>(
        clock,
        timeoutMs,
        (connection) => connection.timedOut(timeoutMs),
        (callback) => transport.afterSockets(callback),
      ),
    })),
    grace:
      endpointGraceMs > 0
        ? new DeadlineQueue(clock, endpointGraceMs, (connection) => connection.graceOver())
        : undefined,
  };
}

export function createTcpShared(
  context: EngineContext,
  transport: TcpTransport,
  loops: LoopGuard,
): TcpShared {
  const { clock, limits, descriptors } = context;
  return {
    ...tcpTimes(context, transport),
    clock,
    limits,
    loops,
    gate: new ConnectionGate(limits, descriptors),
    index: new EndpointIndex(),
    holds: new HoldQueue(context),
    halfClosed: new HalfCloseWatchdog(clock, limits),
    headers: new HeaderReader(clock, (callback) => transport.afterSockets(callback)),
    young: new DeadlineQueue(clock, KEEPALIVE_AFTER_MS, (connection) => connection.keepAlive()),
    kernelPorts: kernelPortRange(),
  };
}
