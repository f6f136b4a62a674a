import type { Clock } from '../../util/clock.ts';
import type { Inspectable } from '../inspect.ts';
import type { EngineLimits } from '../limits.ts';
import { LoopGuard } from '../core/loop-guard.ts';
import type { EngineContext } from '../core/service-port.ts';
import type { Attempt, AttemptOptions } from './attempt.ts';
import { BulkBuffers } from './bulk-buffers.ts';
import { DeadlineQueue } from '../core/deadlines.ts';
import type { CopyMemory, Direction } from './direction.ts';
import { EndpointIndex } from '../core/endpoint-index.ts';
import { ConnectionGate } from './gate.ts';
import { RightOfWay } from './right-of-way.ts';
import { Scratch, SHARED_BYTES } from './scratch.ts';
import { LOOKS, type Silence } from './silence.ts';
import { WaitingRoom } from './waiting-room.ts';

/**
 * When keepalive is set on the socket of an endpoint, after it was connected: that takes four system
 * calls, which most connections do not last long enough to need. Milliseconds.
 */
const KEEPALIVE_AFTER_MS = 1000;

/** A connection, as what all connections share sees it. */
export interface SharedConnection extends Inspectable {
  endpointGone(): void;
  keepAlive(): void;
  graceOver(): void;
  destroy(): void;
}

/** What all TCP connections of an engine share. */
export interface TcpShared extends TcpTimes {
  readonly clock: Clock;
  readonly limits: EngineLimits;
  readonly gate: ConnectionGate;
  /** Knows endpoints that would lead a client in a circle. */
  readonly loops: LoopGuard;
  readonly memory: CopyMemory;
  /** Every connection that has an endpoint, or is being connected to one. */
  readonly index: EndpointIndex<SharedConnection>;
  /** Clients that wait for an endpoint. */
  readonly room: WaitingRoom;
  /** Relays that have only just begun. */
  readonly young: DeadlineQueue<SharedConnection>;
}

/** Replaced when limits change; what has been added to a queue stays in it. */
export interface TcpTimes {
  /** The attempts to connect that a client gets, in order. */
  attempts: readonly AttemptOptions[];
  /** Peers that have sent their FIN, and have to take traffic. */
  silences: DeadlineQueue<Silence>;
  /** Relays whose endpoint is gone; undefined when they may live on without limit. */
  grace: DeadlineQueue<SharedConnection> | undefined;
}

/** What the limits say of times now. */
export function tcpTimes({ clock, limits }: Pick<EngineContext, 'clock' | 'limits'>): TcpTimes {
  const { connectTimeoutsMs, halfCloseTimeoutMs, endpointGraceMs } = limits;
  return {
    attempts: connectTimeoutsMs.map((timeoutMs) => ({
      clock,
      timeoutMs,
      timeouts: new DeadlineQueue<Attempt>(
        clock,
        timeoutMs,
        (attempt) => attempt.timedOut(),
        setImmediate,
      ),
    })),
    silences: new DeadlineQueue(clock, halfCloseTimeoutMs / LOOKS, (silence) => silence.look()),
    grace:
      endpointGraceMs > 0
        ? new DeadlineQueue(clock, endpointGraceMs, (connection) => connection.graceOver())
        : undefined,
  };
}

export function createTcpShared(
  { clock, limits, descriptors }: EngineContext,
  loops = new LoopGuard(clock),
): TcpShared {
  const { keepAliveMs } = limits;
  return {
    ...tcpTimes({ clock, limits }),
    clock,
    limits,
    loops,
    gate: new ConnectionGate(limits, descriptors),
    memory: {
      shared: Buffer.allocUnsafeSlow(SHARED_BYTES),
      scratch: new Scratch(),
      bulk: new BulkBuffers(limits.bulkBufferBudget),
      stalled: new DeadlineQueue<Direction>(clock, keepAliveMs, (direction) => direction.probe()),
      way: new RightOfWay(),
    },
    index: new EndpointIndex(),
    room: new WaitingRoom({ clock, limits, descriptors }),
    young: new DeadlineQueue(clock, KEEPALIVE_AFTER_MS, (connection) => connection.keepAlive()),
  };
}
