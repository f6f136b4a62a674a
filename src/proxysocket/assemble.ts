import { AffinityBudget } from '../roundrobin/affinity-budget.ts';
import { RoundRobinBalancer } from '../roundrobin/balancer.ts';
import type { Balancer } from '../roundrobin/types.ts';
import type { Clock } from '../util/clock.ts';
import { ProcessDescriptors } from './core/descriptors.ts';
import { AcceptorEngine } from './core/engine.ts';
import { LimitSignal } from './core/limit-signal.ts';
import { LoopGuard } from './core/loop-guard.ts';
import { SharedServicePorts } from './core/shared-service-ports.ts';
import type { CounterStore } from './core/service-port-table.ts';
import type { EngineContext } from './core/service-port.ts';
import type { Engine } from './engine.ts';
import { LIMIT_NAMES, type EngineLimits } from './limits.ts';
import type { AffinitySpec } from './spec.ts';
import { TcpAcceptor } from './tcp/acceptor.ts';
import type { AcceptOwner, TcpTransport } from './tcp/transport.ts';
import { UdpAcceptor } from './udp/acceptor.ts';
import type { UdpSession, UdpTransport } from './udp/transport.ts';

export interface CoreOptions {
  readonly limits: EngineLimits;
  readonly clock: Clock;
  /** Evenly distributed in [0, 1), as `Math.random`. */
  readonly random: () => number;
  /** How many descriptors the engine may count with. */
  readonly descriptorLimit: number;
  /** Where counters live. Default: plain objects. */
  readonly counters?: CounterStore | undefined;
}

/** The sockets of an engine. */
interface Transports<S extends UdpSession<S>> {
  readonly tcp: TcpTransport;
  readonly udp: UdpTransport<S>;
}

/** An engine in the calling thread, on the sockets of two transports. */
export function createEngine<S extends UdpSession<S>>(
  kind: Engine['kind'],
  options: CoreOptions,
  transports: (context: EngineContext) => Transports<S>,
): AcceptorEngine {
  const { clock, random, descriptorLimit, counters } = options;
  // `setLimits` changes this object.
  const limits = { ...options.limits };
  const descriptors = new ProcessDescriptors({
    limit: descriptorLimit,
    reserve: limits.reservedDescriptors,
  });
  const context = { limits, clock, descriptors };
  const shared = new SharedServicePorts<AcceptOwner>();
  const loops = new LoopGuard(clock, { dormant: (key) => shared.dormant(key) });
  const { tcp, udp } = transports(context);
  return new AcceptorEngine({
    kind,
    acceptors: {
      TCP: new TcpAcceptor(tcp, context, loops, shared),
      UDP: new UdpAcceptor(udp, context),
    },
    descriptors,
    loops,
    shared,
    newBalancer: balancerFactory(limits, clock, random),
    limits,
    clock,
    random,
    ...(counters !== undefined && { counters }),
  });
}

/** Makes the balancers of an engine's service ports. */
function balancerFactory(
  { maxAffinityClients, maxAffinityClientsTotal }: EngineLimits,
  clock: Clock,
  random: () => number,
): (affinity: AffinitySpec) => Balancer {
  const total = new LimitSignal(LIMIT_NAMES.maxAffinityClientsTotal, () => maxAffinityClientsTotal);
  const affinityBudget = new AffinityBudget({
    maxClients: maxAffinityClientsTotal,
    onEvict: () => total.refused(),
    onFreed: (left) => total.freed(left),
  });
  return (affinity) => {
    const signal = new LimitSignal(LIMIT_NAMES.maxAffinityClients, () => maxAffinityClients);
    return new RoundRobinBalancer({
      clock,
      random,
      affinity,
      maxAffinityClients,
      affinityBudget,
      onEvict: () => signal.refused(),
      onFreed: (left) => signal.freed(left),
    });
  };
}
