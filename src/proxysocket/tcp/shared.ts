import type { Clock } from '../../util/clock.ts';
import type { EngineLimits } from '../limits.ts';
import { LoopGuard } from '../loop-guard.ts';
import type { EngineContext } from '../service-port.ts';
import type { Attempt, AttemptOptions } from './attempt.ts';
import { BulkBuffers } from './bulk-buffers.ts';
import { DeadlineQueue } from './deadlines.ts';
import type { CopyMemory, Direction } from './direction.ts';
import { EndpointIndex } from './endpoint-index.ts';
import { ConnectionGate } from './gate.ts';
import { Scratch, SHARED_BYTES } from './scratch.ts';

/** A connection, as what all connections share sees it. */
export interface SharedConnection {
  endpointGone(): void;
  graceOver(): void;
  destroy(): void;
}

/** What all TCP connections of an engine share. */
export interface TcpShared {
  readonly clock: Clock;
  readonly limits: EngineLimits;
  readonly gate: ConnectionGate;
  /** Knows endpoints that would lead a client in a circle. */
  readonly loops: LoopGuard;
  readonly memory: CopyMemory;
  /** The attempts to connect that a client gets, in order. */
  readonly attempts: readonly AttemptOptions[];
  /** Every connection that has an endpoint, or is being connected to one. */
  readonly index: EndpointIndex<SharedConnection>;
  /** Relays whose endpoint is gone; undefined when they may live on without limit. */
  readonly grace: DeadlineQueue<SharedConnection> | undefined;
}

export function createTcpShared(
  { clock, limits, descriptors }: EngineContext,
  loops = new LoopGuard(clock),
): TcpShared {
  const { connectTimeoutsMs, keepAliveMs, endpointGraceMs } = limits;
  return {
    clock,
    limits,
    loops,
    gate: new ConnectionGate(limits.maxConnections, descriptors),
    memory: {
      shared: Buffer.allocUnsafeSlow(SHARED_BYTES),
      scratch: new Scratch(),
      bulk: new BulkBuffers(limits.bulkBufferBudget),
      stalled: new DeadlineQueue<Direction>(clock, keepAliveMs, (direction) => direction.probe()),
    },
    attempts: connectTimeoutsMs.map((timeoutMs) => ({
      clock,
      keepAliveMs,
      timeoutMs,
      timeouts: new DeadlineQueue<Attempt>(
        clock,
        timeoutMs,
        (attempt) => attempt.timedOut(),
        setImmediate,
      ),
    })),
    index: new EndpointIndex(),
    grace:
      endpointGraceMs > 0
        ? new DeadlineQueue(clock, endpointGraceMs, (connection) => connection.graceOver())
        : undefined,
  };
}
