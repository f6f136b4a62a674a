import type { BalancerEndpoint } from '../../../roundrobin/types.ts';
import type { PortRange } from '../../../util/port-range.ts';
import type { Clock } from '../../../util/clock.ts';
import { kernelPortRange } from '../../core/kernel-port.ts';
import type { EngineLimits } from '../../limits.ts';
import type { LoopGuard } from '../../core/loop-guard.ts';
import type { EngineContext } from '../../core/service-port.ts';
import { DeadlineQueue } from '../../core/deadlines.ts';
import { EndpointIndex } from '../../core/endpoint-index.ts';
import { ConnectionGate } from '../../tcp/gate.ts';
import { WaitingRoom } from '../../tcp/waiting-room.ts';
import { IdleLanes } from '../../core/idle-lanes.ts';
import type { Loop } from '../loop.ts';
import type { Sockaddr } from '../sys/sockaddr.ts';
import type { Connection } from './connection.ts';
import { RelayMemory } from './memory.ts';
import type { Relay } from './relay.ts';

/**
 * When keepalive is set on the socket of an endpoint, after it was connected. Most connections do not
 * last so long, and never pay for it.
 */
const KEEPALIVE_AFTER_MS = 1000;

/** One attempt to connect that an endpoint gets. */
export interface AttemptTime {
  readonly timeoutMs: number;
  /** Connections whose attempt is running. */
  readonly running: DeadlineQueue<Connection>;
}

/** What all TCP connections of a loop share. */
export interface TcpShared extends TcpTimes {
  readonly loop: Loop;
  readonly clock: Clock;
  readonly limits: EngineLimits;
  readonly loops: LoopGuard;
  readonly gate: ConnectionGate;
  readonly memory: RelayMemory;
  /** Every connection that has an endpoint, or is being connected to one. */
  readonly index: EndpointIndex<Connection>;
  /** Clients that wait for an endpoint. */
  readonly room: WaitingRoom;
  readonly halfClosed: IdleLanes<Relay>;
  /** Relays that are too young for keepalive. */
  readonly young: DeadlineQueue<Connection>;
  /** Ports that the kernel chooses for our side; undefined when it does not say. */
  readonly kernelPorts: PortRange | undefined;
  /** The kernel's form of an endpoint's address. */
  readonly sockaddr: (endpoint: BalancerEndpoint) => Sockaddr;
}

/** Replaced when limits change; what has been added to a queue stays in it. */
export interface TcpTimes {
  /** The attempts that a client gets, in order. */
  attempts: readonly AttemptTime[];
  /** Relays whose endpoint is gone; undefined when they may live on without limit. */
  grace: DeadlineQueue<Connection> | undefined;
}

/** What the limits say of times now. */
export function tcpTimes({ clock, limits }: Pick<EngineContext, 'clock' | 'limits'>): TcpTimes {
  const { connectTimeoutsMs, endpointGraceMs } = limits;
  return {
    attempts: connectTimeoutsMs.map((timeoutMs) => ({
      timeoutMs,
      running: new DeadlineQueue(clock, timeoutMs, (connection) => connection.timedOut(timeoutMs)),
    })),
    grace:
      endpointGraceMs > 0
        ? new DeadlineQueue(clock, endpointGraceMs, (connection) => connection.graceOver())
        : undefined,
  };
}

export function createTcpShared(loop: Loop, context: EngineContext, loops: LoopGuard): TcpShared {
  const { clock, limits, descriptors } = context;
  const known = new WeakMap<BalancerEndpoint, Sockaddr>();
  return {
    ...tcpTimes(context),
    loop,
    clock,
    limits,
    loops,
    gate: new ConnectionGate(limits, descriptors),
    memory: new RelayMemory(loop.sys, limits.bulkBufferBudget, descriptors),
    index: new EndpointIndex(),
    room: new WaitingRoom(context),
    halfClosed: new IdleLanes(
      clock,
      () => limits.halfCloseTimeoutMs,
      (relay) => relay.idle(),
    ),
    young: new DeadlineQueue(clock, KEEPALIVE_AFTER_MS, (connection) => connection.keepAlive()),
    kernelPorts: kernelPortRange(),
    sockaddr(endpoint) {
      let found = known.get(endpoint);
      if (found === undefined) {
        found = loop.sys.sockaddr(endpoint);
        known.set(endpoint, found);
      }
      return found;
    },
  };
}
