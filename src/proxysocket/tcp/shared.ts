import type { Clock } from '../../util/clock.ts';
import type { PortRange } from '../../util/port-range.ts';
import { DeadlineQueue } from '../core/timers.ts';
import { EndpointIndex } from '../core/endpoint-index.ts';
import { kernelPortRange } from '../core/kernel-port.ts';
import type { LoopGuard } from '../core/loop-guard.ts';
import type { EngineContext } from '../core/service-port.ts';
import type { EngineLimits } from '../limits.ts';
import type { TcpConnection } from './connection.ts';
import { ConnectionGate } from './gate.ts';
import { HalfCloseWatchdog } from './half-close.ts';
import { HoldQueue } from './hold-queue.ts';
import type { TcpTransport } from './transport.ts';

/**
 * When keepalive is set on the socket of an endpoint, after it was connected: that takes four system calls, and
 * most connections do not last so long. Milliseconds.
 */
const KEEPALIVE_AFTER_MS = 1000;

/** One attempt to connect that a client gets. */
export interface AttemptTime {
  readonly timeoutMs: number;
  /** Connections whose attempt is running. */
  readonly running: DeadlineQueue<TcpConnection>;
}

/** What all TCP connections of an engine share. */
export interface TcpShared extends TcpTimes {
  readonly clock: Clock;
  readonly limits: EngineLimits;
  readonly gate: ConnectionGate;
  /** Knows endpoints that would lead a client in a circle. */
  readonly loops: LoopGuard;
  /** Every connection that has an endpoint, or is dialing one. */
  readonly index: EndpointIndex<TcpConnection>;
  /** Clients that wait for an endpoint. */
  readonly holds: HoldQueue;
  readonly halfClosed: HalfCloseWatchdog;
  /** Relays that are too young for keepalive. */
  readonly young: DeadlineQueue<TcpConnection>;
  /** Ports that the kernel chooses for our side; undefined when it does not say. */
  readonly kernelPorts: PortRange | undefined;
}

/** Replaced when limits change; what has been added to a queue stays in it. */
export interface TcpTimes {
  /** The attempts that a client gets, in order. */
  attempts: readonly AttemptTime[];
  /** Relays whose endpoint was removed; undefined when they may live on without limit. */
  grace: DeadlineQueue<TcpConnection> | undefined;
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
      running: new DeadlineQueue<TcpConnection>(
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
    young: new DeadlineQueue(clock, KEEPALIVE_AFTER_MS, (connection) => connection.keepAlive()),
    kernelPorts: kernelPortRange(),
  };
}
