import type { BalancerEndpoint } from '../../../roundrobin/types.ts';
import type { EngineContext } from '../../core/service-port.ts';
import { Sessions } from '../../udp/sessions.ts';
import type { Loop } from '../loop.ts';
import type { DatagramSlots } from '../sys/datagram-slots.ts';
import type { PeerNames } from '../sys/names.ts';
import type { Sockaddr } from '../sys/sockaddr.ts';
import { Answers } from './answers.ts';
import { Sender } from './outgoing.ts';
import { UdpSession } from './session.ts';

/** Datagrams that one call receives from a listening socket. */
const SLOTS = 64;

/** What all UDP sockets of a loop share. */
export interface UdpShared {
  readonly loop: Loop;
  readonly context: EngineContext;
  readonly sessions: Sessions<UdpSession>;
  /** Datagrams of clients, until they are sent on in the same event. */
  readonly requests: DatagramSlots;
  readonly sender: Sender;
  /** Datagrams of endpoints, until the end of the turn. */
  readonly answers: Answers;
  readonly names: PeerNames;
  /** The kernel can take a message apart into datagrams. */
  readonly hasSegments: boolean;
  /** The kernel's form of an endpoint's address. */
  readonly sockaddr: (endpoint: BalancerEndpoint) => Sockaddr;
}

export function createUdpShared(loop: Loop, context: EngineContext): UdpShared {
  const { sys } = loop;
  const requests = sys.datagramSlots(SLOTS);
  const known = new WeakMap<BalancerEndpoint, Sockaddr>();
  const shared: UdpShared = {
    loop,
    context,
    sessions: new Sessions(context, (host, start) => new UdpSession(shared, host, start)),
    requests,
    sender: new Sender(sys, 'request', requests),
    answers: new Answers(loop),
    names: sys.peerNames(),
    hasSegments: sys.hasUdpSegments,
    sockaddr(endpoint) {
      let found = known.get(endpoint);
      if (found === undefined) {
        found = sys.sockaddr(endpoint);
        known.set(endpoint, found);
      }
      return found;
    },
  };
  return shared;
}
