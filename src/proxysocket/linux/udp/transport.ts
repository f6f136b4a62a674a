import type { BalancerEndpoint } from '../../../roundrobin/types.ts';
import type { EngineContext } from '../../core/service-port.ts';
import type { ListenSpec } from '../../spec.ts';
import type {
  FrontOwner,
  SessionHost,
  SessionStart,
  UdpListening,
  UdpTransport,
} from '../../udp/transport.ts';
import type { Loop } from '../loop.ts';
import type { DatagramSlots } from '../sys/datagram-slots.ts';
import type { PeerNames } from '../sys/memory.ts';
import type { Sockaddr } from '../sys/address.ts';
import { Answers } from './answers.ts';
import { LinuxFront } from './front.ts';
import { Sender } from './outgoing.ts';
import { LinuxUdpSession } from './session.ts';

/** Datagrams that one call receives from a listening socket. */
const SLOTS = 64;

/** UDP on system calls, in the thread that turns the loop. */
export class LinuxUdpTransport implements UdpTransport<LinuxUdpSession> {
  readonly loop: Loop;
  readonly socketBuffer: number;
  /** Datagrams of clients, until they are sent on in the same event. */
  readonly requests: DatagramSlots;
  readonly sender: Sender;
  /** Datagrams of endpoints, until the end of the turn. */
  readonly answers: Answers;
  readonly names: PeerNames;
  /** The kernel can split a message into datagrams. */
  readonly hasSegments: boolean;
  readonly #sockaddrs = new WeakMap<BalancerEndpoint, Sockaddr>();

  constructor(loop: Loop, { limits }: Pick<EngineContext, 'limits'>) {
    const { sys } = loop;
    this.loop = loop;
    this.socketBuffer = limits.udpSocketBuffer;
    this.requests = sys.datagramSlots(SLOTS);
    this.sender = new Sender(sys, 'request', this.requests);
    this.answers = new Answers(loop);
    this.names = sys.peerNames();
    this.hasSegments = sys.hasUdpSegments;
  }

  async listen(
    spec: ListenSpec,
    owner: FrontOwner<LinuxUdpSession>,
  ): Promise<UdpListening<LinuxUdpSession>> {
    return new LinuxFront(this, spec, owner);
  }

  newSession(host: SessionHost<LinuxUdpSession>, start: SessionStart<LinuxFront>): LinuxUdpSession {
    return new LinuxUdpSession(this, host, start);
  }

  /** The kernel's form of an endpoint's address. */
  sockaddr(endpoint: BalancerEndpoint): Sockaddr {
    let found = this.#sockaddrs.get(endpoint);
    if (found === undefined) {
      found = this.loop.sys.sockaddr(endpoint);
      this.#sockaddrs.set(endpoint, found);
    }
    return found;
  }
}
