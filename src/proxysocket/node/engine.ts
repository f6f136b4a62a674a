import { systemClock } from '../../util/clock.ts';
import { AcceptorEngine, type CoreOptions } from '../acceptor-engine.ts';
import { defaultReserve, processDescriptorLimit } from '../core/descriptors.ts';
import { DEFAULT_LIMITS, type EngineLimits } from '../limits.ts';
import { nodeTcp } from './tcp/transport.ts';
import { nodeUdp, type NodeUdpOptions } from './udp/transport.ts';

export interface NodeEngineOptions extends Partial<Omit<CoreOptions, 'limits'>>, NodeUdpOptions {
  readonly limits?: Partial<EngineLimits>;
  /** Use only documented features of Node's TCP sockets; slower for bulk data from clients. */
  readonly documentedOnly?: boolean;
}

/** The engine on Node's own sockets, for every system, in the thread that calls this. */
export function createNodeEngine(options: NodeEngineOptions = {}): AcceptorEngine {
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
    tcp: nodeTcp(context, options.documentedOnly),
    udp: nodeUdp(context, options),
  }));
}
