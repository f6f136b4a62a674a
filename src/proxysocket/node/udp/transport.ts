import type { EngineContext } from '../../core/service-port.ts';
import type { ListenSpec } from '../../spec.ts';
import type {
  FrontOwner,
  SessionHost,
  SessionStart,
  UdpListening,
  UdpTransport,
} from '../../udp/transport.ts';
import type { NodeFront } from './front.ts';
import { HostAddressWatch, type HostAddresses } from './host-addresses.ts';
import { CappedListeners, NodeUdpListening, type ListenParts } from './listening.ts';
import { NodeUdpSession } from './session.ts';

export interface NodeUdpOptions {
  /** Reads the addresses on which a wildcard listener opens further sockets. Default: all of the host. */
  readonly hostAddresses?: () => HostAddresses;
}

/** UDP on `dgram`. */
export class NodeUdpTransport implements UdpTransport<NodeUdpSession> {
  readonly #parts: ListenParts;

  constructor(context: EngineContext, { hostAddresses }: NodeUdpOptions = {}) {
    this.#parts = {
      context,
      capped: new CappedListeners(context.limits.udpWildcardSockets),
      hostAddresses: new HostAddressWatch(context.clock, hostAddresses),
    };
  }

  listen(
    spec: ListenSpec,
    owner: FrontOwner<NodeUdpSession>,
  ): Promise<UdpListening<NodeUdpSession>> {
    return NodeUdpListening.open(this.#parts, spec, owner);
  }

  newSession(host: SessionHost<NodeUdpSession>, start: SessionStart<NodeFront>): NodeUdpSession {
    return new NodeUdpSession(host, start);
  }
}
