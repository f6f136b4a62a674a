import type { RemoteInfo, Socket } from 'node:dgram';
import { fstatSync } from 'node:fs';
import type { Timer } from '../../../util/clock.ts';
import { familyOf, isWildcard, WILDCARD, type Family } from '../../../util/family.ts';
import { hostAddresses, type HostAddress } from '../../../util/host-addresses.ts';
import { LimitSignal } from '../../core/limit-signal.ts';
import type { EngineContext } from '../../core/service-port.ts';
import type { EngineLimits } from '../../limits.ts';
import {
  ListenSocket,
  type ListenSocketOwner,
  type SessionStart,
  type UdpListening,
  type UdpTransport,
} from '../../udp/transport.ts';
import {
  boundSocket,
  handleOf,
  inheritedSocket,
  NodeUdpSession,
  setBufferSizes,
} from './session.ts';

/** How often the host's addresses are read again while there is a wildcard listener. Milliseconds. */
const ADDRESS_POLL_MS = 5000;

/** The host's addresses. Link-local ones of IPv6 need a zone, and every pod interface of a node has one. */
export function readHostAddresses(
  read: () => readonly HostAddress[] = hostAddresses,
): readonly string[] {
  const all = read().map(({ address }) => address);
  return all.filter((address) => !/^fe[89ab]/i.test(address));
}

export interface NodeUdpOptions {
  /**
   * The addresses on which a listener on the wildcard address opens further sockets. Default: all of the host,
   * which would be too many where a portal has added one for each service.
   */
  readonly hostAddresses?: () => readonly HostAddress[];
}

export function nodeUdp(
  context: EngineContext,
  { hostAddresses: read }: NodeUdpOptions = {},
): UdpTransport {
  const { clock, limits } = context;
  const wildcards = new Set<WildcardSockets>();
  const signal = new LimitSignal('udp-wildcard-sockets', () => limits.udpWildcardSockets);
  let addresses: readonly string[] = [];
  let timer: Timer | undefined;
  const follow = (listeners: Iterable<WildcardSockets>): void => {
    for (const wildcard of listeners) wildcard.follow(addresses);
    if ([...wildcards].some((each) => each.isCapped())) signal.refused();
    else signal.left();
  };
  /** Node has no event for an address that appears. */
  const poll = (): void => {
    addresses = readHostAddresses(read);
    timer = clock.setTimer(ADDRESS_POLL_MS, poll);
    follow(wildcards);
  };
  return {
    async listen({ address, port }, owner) {
      const family = familyOf(address);
      if (!isWildcard(address))
        return new NodeListenSocket(boundSocket(family, address, port), family, owner, limits);
      const wildcard = wildcardSockets(context, family, port, owner, () => {
        wildcards.delete(wildcard);
        follow([]);
        if (wildcards.size > 0) return;
        timer?.cancel();
        timer = undefined;
      });
      wildcards.add(wildcard);
      if (timer === undefined) poll();
      else follow([wildcard]);
      return wildcard;
    },
  };
}

interface WildcardSockets extends UdpListening {
  /** Opens a socket for each new address of the host, closes those of removed ones. */
  follow(addresses: readonly string[]): void;
  /** The host has more addresses than there may be sockets. */
  isCapped(): boolean;
}

/**
 * The sockets of a UDP listener on a wildcard address: one, and one for each address of the host, which the kernel
 * prefers. A client drops an answer from another address than it has sent to, and `dgram` does not report that address.
 * The wildcard socket serves addresses that the host does not list (127.0.0.2, `local` routes, IPv6 link-local), beyond
 * `udpWildcardSockets`, or new within seconds.
 */
function wildcardSockets(
  { limits, descriptors }: EngineContext,
  family: Family,
  port: number,
  owner: ListenSocketOwner,
  onClosed: () => void,
): WildcardSockets {
  const main = new NodeListenSocket(sharedSocket(family, port), family, owner, limits);
  const { boundPort } = main;
  const members = new Map<string, NodeListenSocket>();
  const all = () => [main, ...members.values()];
  let wanted: ReadonlySet<string> = new Set();
  return {
    boundPort,
    sessions: () => all().flatMap((each) => each.sessions()),
    leave(served) {
      for (const each of all()) each.leave(served);
    },
    async close() {
      const closing = all();
      descriptors.release(members.size, 'UDP');
      members.clear();
      onClosed();
      await Promise.all(closing.map((each) => each.close()));
    },
    follow(addresses) {
      wanted = new Set(addresses.filter((each) => familyOf(each) === family));
      for (const [address, listenSocket] of members) {
        if (wanted.has(address)) continue;
        members.delete(address);
        descriptors.release(1, 'UDP');
        void listenSocket.close();
      }
      for (const address of wanted) {
        if (members.has(address)) continue;
        if (members.size >= limits.udpWildcardSockets || !descriptors.acquire(1, 'UDP')) break;
        try {
          const socket = boundSocket(family, address, boundPort, SHARES_PORT);
          members.set(address, new NodeListenSocket(socket, family, owner, limits));
        } catch {
          // An address may be unusable for a while (IPv6 looks for duplicates first), or its port taken. Until a later
          // reading of the addresses succeeds, the wildcard socket serves it.
          descriptors.release(1, 'UDP');
        }
      }
    },
    isCapped: () => wanted.size > limits.udpWildcardSockets,
  };
}

class NodeListenSocket extends ListenSocket<NodeUdpSession> {
  readonly boundPort: number;
  readonly #socket: Socket;
  readonly #limits: EngineLimits;

  constructor(socket: Socket, family: Family, owner: ListenSocketOwner, limits: EngineLimits) {
    super(family, owner);
    this.#socket = socket;
    this.#limits = limits;
    this.boundPort = socket.address().port;
    setBufferSizes(socket, limits.udpSocketBuffer);
    socket.on('message', this.#onMessage);
    // Windows reports here that an answer did not reach a client (ECONNRESET), and any system may fail to hand over a
    // datagram. The socket keeps receiving after an error.
    socket.on('error', () => owner.dropped());
  }

  protected makeSession(start: SessionStart): NodeUdpSession {
    return new NodeUdpSession(start, this.#socket, this.#limits);
  }

  /** `dgram` has no documented way to stop reading and still send. Without this one, the socket closes early. */
  protected stopReading(served: ReadonlySet<number>): boolean {
    const handle = handleOf(this.#socket);
    if (handle?.recvStop === undefined || !served.has(fstatSync(handle.fd).ino)) return false;
    handle.recvStop();
    return true;
  }

  protected async closeSocket(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#socket.close(resolve);
    await promise;
  }

  readonly #onMessage = (message: Buffer, { address, port }: RemoteInfo): void => {
    const session = this.known.get(address, port);
    if (session !== undefined) session.forward(message);
    // Such a client cannot be answered, and `dgram` would throw.
    else if (port === 0) this.owner.dropped();
    else this.begin({ address, port, keys: [address, port] })?.forward(message);
  };
}

/**
 * Linux lets a wildcard socket and one on a single address have the same port only if both set SO_REUSEPORT;
 * Windows always does. Elsewhere the wildcard socket stays alone.
 */
const SHARES_PORT = process.platform === 'linux';

/**
 * A wildcard socket that sockets on single addresses may join. A second wildcard socket could join, too, and get a
 * share of the clients, so an exclusive socket first checks that the port is free.
 */
function sharedSocket(family: Family, port: number): Socket {
  const address = WILDCARD[family];
  const inherited = inheritedSocket(family, address, port);
  if (inherited !== undefined) return inherited;
  const probe = boundSocket(family, address, port);
  if (!SHARES_PORT) return probe;
  const { port: free } = probe.address();
  probe.close();
  try {
    return boundSocket(family, address, free, true);
  } catch {
    // Some sandboxes have no shared ports; any other error appears here.
    return boundSocket(family, address, free);
  }
}
