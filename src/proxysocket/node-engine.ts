import { systemClock, type Clock } from '../util/clock.ts';
import { AcceptorEngine } from './acceptor-engine.ts';
import { balancerFactory } from './balancer-factory.ts';
import { ProcessDescriptors, processDescriptorLimit } from './descriptors.ts';
import type { Engine } from './engine.ts';
import { LoopGuard } from './loop-guard.ts';
import { DEFAULT_LIMITS, type EngineLimits } from './limits.ts';
import { createTcpAcceptor } from './tcp/acceptor.ts';
import { createUdpAcceptor } from './udp/acceptor.ts';

export interface NodeEngineOptions {
  /** Instead of the defaults, each by itself. */
  readonly limits?: Partial<EngineLimits>;
  readonly clock?: Clock;
  /** Evenly distributed in [0, 1), as `Math.random`. */
  readonly random?: () => number;
  /** Use only what Node documents of its TCP sockets; slower for bulk data from clients. */
  readonly documentedOnly?: boolean;
}

/** The engine on Node's own sockets, for every system. */
export function createNodeEngine(options: NodeEngineOptions = {}): Engine {
  const { clock = systemClock, random = Math.random, documentedOnly = false } = options;
  const limits: EngineLimits = { ...DEFAULT_LIMITS, ...options.limits };
  const descriptors = new ProcessDescriptors({
    limit: processDescriptorLimit(),
    reserve: limits.reservedDescriptors,
  });
  const context = { limits, clock, descriptors };
  const loops = new LoopGuard(clock);
  return new AcceptorEngine({
    kind: 'node',
    acceptors: {
      TCP: createTcpAcceptor(context, { documentedOnly, loops }),
      UDP: createUdpAcceptor(context),
    },
    descriptors,
    loops,
    newBalancer: balancerFactory(limits, clock, random),
    udpIdleTimeoutMs: limits.udpIdleTimeoutMs,
    clock,
    random,
  });
}
