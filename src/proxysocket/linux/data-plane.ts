import type { Clock } from '../../util/clock.ts';
import { AcceptorEngine } from '../core/acceptor-engine.ts';
import { balancerFactory } from '../core/balancer-factory.ts';
import { ProcessDescriptors } from '../core/descriptors.ts';
import type { EngineLimits } from '../limits.ts';
import { LoopGuard } from '../core/loop-guard.ts';
import type { CounterStore } from '../core/service-port-book.ts';
import type { Loop } from './loop.ts';
import { createTcpAcceptor } from '../tcp/acceptor.ts';
import { LinuxTcpTransport } from './tcp/transport.ts';
import { createUdpAcceptor } from '../udp/acceptor.ts';
import { LinuxUdpTransport } from './udp/transport.ts';

export interface DataPlaneOptions {
  readonly limits: EngineLimits;
  readonly clock: Clock;
  /** Evenly distributed in [0, 1), as `Math.random`. */
  readonly random: () => number;
  /** How many descriptors the process may have. */
  readonly descriptorLimit: number;
  readonly counters?: CounterStore;
  readonly formerPort?: (key: string) => number | undefined;
}

/**
 * Accepts, dials and relays in the thread that turns the loop: everything of the `linux` engine but
 * the thread itself.
 */
export function createDataPlane(loop: Loop, options: DataPlaneOptions): AcceptorEngine {
  const { clock, random, descriptorLimit, counters, formerPort } = options;
  const limits = { ...options.limits };
  const descriptors = new ProcessDescriptors({
    limit: descriptorLimit,
    reserve: limits.reservedDescriptors,
  });
  const context = { limits, clock, descriptors };
  const loops = new LoopGuard(clock);
  return new AcceptorEngine({
    kind: 'linux',
    acceptors: {
      TCP: createTcpAcceptor(new LinuxTcpTransport(loop, context), context, loops),
      UDP: createUdpAcceptor(new LinuxUdpTransport(loop, context), context),
    },
    descriptors,
    loops,
    newBalancer: balancerFactory(limits, clock, random),
    limits,
    clock,
    random,
    ...(counters !== undefined && { counters }),
    ...(formerPort !== undefined && { formerPort }),
  });
}
