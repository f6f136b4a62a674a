import { systemClock } from '../../util/clock.ts';
import type { HostAddress } from '../../util/host-addresses.ts';
import { AcceptorEngine, type CoreOptions } from '../acceptor-engine.ts';
import { defaultReserve, processDescriptorLimit } from '../core/descriptors.ts';
import { DEFAULT_LIMITS, type EngineLimits } from '../limits.ts';
import { NodeTcpTransport } from './tcp/transport.ts';
import { NodeUdpTransport, readHostAddresses } from './udp/transport.ts';

/** All of them have defaults. */
export interface NodeEngineOptions extends Partial<Omit<CoreOptions, 'limits'>> {
  /** Overrides for individual defaults. */
  readonly limits?: Partial<EngineLimits>;
  /** Use only documented features of Node's TCP sockets; slower for bulk data from clients. */
  readonly documentedOnly?: boolean;
  /**
   * The addresses on which a UDP listener on the wildcard address opens further sockets. Default: all of the host,
   * which would be too many where a portal has added one for each service.
   */
  readonly hostAddresses?: () => readonly HostAddress[];
}

/** The engine on Node's own sockets, for every system, in the thread that calls this. */
export function createNodeEngine(options: NodeEngineOptions = {}): AcceptorEngine {
  const { documentedOnly = false, hostAddresses } = options;
  const descriptorLimit = options.descriptorLimit ?? processDescriptorLimit();
  const core: CoreOptions = {
    clock: systemClock,
    random: Math.random,
    ...options,
    descriptorLimit,
    limits: {
      ...DEFAULT_LIMITS,
      reservedDescriptors: defaultReserve(descriptorLimit),
      ...options.limits,
    },
  };
  return new AcceptorEngine('node', core, (context) => ({
    tcp: new NodeTcpTransport(context, documentedOnly),
    udp: new NodeUdpTransport(context, {
      hostAddresses: () => readHostAddresses(hostAddresses),
    }),
  }));
}
