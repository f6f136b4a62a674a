import { systemClock, type Clock } from '../../util/clock.ts';
import type { HostAddress } from '../../util/host-addresses.ts';
import { AcceptorEngine } from '../core/acceptor-engine.ts';
import { balancerFactory } from '../core/balancer-factory.ts';
import { defaultReserve, ProcessDescriptors, processDescriptorLimit } from '../core/descriptors.ts';
import type { ListenerSockets } from '../core/listener-sockets.ts';
import { LoopGuard } from '../core/loop-guard.ts';
import { DEFAULT_LIMITS, type EngineLimits } from '../limits.ts';
import type { CounterStore } from '../core/service-port-book.ts';
import { createTcpAcceptor } from '../tcp/acceptor.ts';
import { NodeTcpTransport } from './tcp/transport.ts';
import { createUdpAcceptor } from '../udp/acceptor.ts';
import { readHostAddresses, type HostAddresses } from './udp/host-addresses.ts';
import { NodeUdpTransport } from './udp/transport.ts';

export interface NodeEngineOptions {
  /** Instead of the defaults, each by itself. */
  readonly limits?: Partial<EngineLimits>;
  readonly clock?: Clock;
  /** Evenly distributed in [0, 1), as `Math.random`. */
  readonly random?: () => number;
  /** Use only what Node documents of its TCP sockets; slower for bulk data from clients. */
  readonly documentedOnly?: boolean;
  /**
   * The addresses on which a UDP listener on every address opens further sockets. Default: all of the
   * host, which would be too many where a portal has added one for each service.
   */
  readonly hostAddresses?: () => readonly HostAddress[];
  /** The port that the listener of a place which asks for any one has had before. */
  readonly formerPort?: (key: string) => number | undefined;
  /** How many descriptors this engine may count with. Default: all that the process may have. */
  readonly descriptorLimit?: number;
  /** Where counters live. */
  readonly counters?: CounterStore;
  /** Opens the sockets of listeners. Default: Node does. */
  readonly sockets?: ListenerSockets;
}

/** The engine on Node's own sockets, for every system, in the thread that calls this. */
export function createNodeEngine(options: NodeEngineOptions = {}): AcceptorEngine {
  const { clock = systemClock, random = Math.random, documentedOnly = false, sockets } = options;
  const limit = options.descriptorLimit ?? processDescriptorLimit();
  const limits: EngineLimits = {
    ...DEFAULT_LIMITS,
    reservedDescriptors: defaultReserve(limit),
    ...options.limits,
  };
  const descriptors = new ProcessDescriptors({
    limit,
    reserve: limits.reservedDescriptors,
    ...(sockets !== undefined && { perListener: sockets.descriptors }),
  });
  const context = { limits, clock, descriptors };
  const hostAddresses = (): HostAddresses => readHostAddresses(options.hostAddresses);
  const tcp = new NodeTcpTransport(context, { documentedOnly, sockets });
  const udp = new NodeUdpTransport(context, { hostAddresses, sockets });
  const loops = new LoopGuard(clock);
  return new AcceptorEngine({
    kind: 'node',
    acceptors: {
      TCP: createTcpAcceptor(tcp, context, loops),
      UDP: createUdpAcceptor(udp, context),
    },
    descriptors,
    loops,
    newBalancer: balancerFactory(limits, clock, random),
    limits,
    clock,
    random,
    ...(options.counters !== undefined && { counters: options.counters }),
    ...(options.formerPort !== undefined && { formerPort: options.formerPort }),
  });
}
