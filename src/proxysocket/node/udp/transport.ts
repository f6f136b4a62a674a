import type { RemoteInfo, Socket } from 'node:dgram';
import { fstatSync } from 'node:fs';
import type { BalancerEndpoint } from '../../../roundrobin/endpoint.ts';
import type { Timer } from '../../../util/clock.ts';
import { familyOf, isWildcard, WILDCARD, type Family } from '../../../util/family.ts';
import { hostAddresses, type HostAddress } from '../../../util/host-addresses.ts';
import { LimitSignal } from '../../core/limit-signal.ts';
import type { EngineContext, ServicePort } from '../../core/service-port.ts';
import type { EngineLimits } from '../../limits.ts';
import type { ListenSpec } from '../../spec.ts';
import {
  ListenSocket,
  type ListenSocketOwner,
  type SessionClient,
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

export class NodeUdpTransport implements UdpTransport {
  readonly #context: EngineContext;
  readonly #readAddresses: NodeUdpOptions['hostAddresses'];
  #addresses: readonly string[] = [];
  readonly #wildcards = new Set<WildcardSockets>();
  #timer: Timer | undefined;
  readonly #signal: LimitSignal;

  constructor(context: EngineContext, options: NodeUdpOptions = {}) {
    this.#context = context;
    this.#readAddresses = options.hostAddresses;
    const { udpWildcardSockets } = context.limits;
    this.#signal = new LimitSignal('udp-wildcard-sockets', () => udpWildcardSockets);
  }

  async listen(spec: ListenSpec, owner: ListenSocketOwner): Promise<UdpListening> {
    const { address, port } = spec;
    const family = familyOf(address);
    const { limits } = this.#context;
    if (!isWildcard(address))
      return new NodeListenSocket(boundSocket(family, address, port), family, owner, limits);
    const wildcard = new WildcardSockets(this.#context, family, port, owner, () => {
      this.#wildcards.delete(wildcard);
      this.#publishCap();
      if (this.#wildcards.size > 0) return;
      this.#timer?.cancel();
      this.#timer = undefined;
    });
    this.#wildcards.add(wildcard);
    if (this.#timer === undefined) this.#read();
    wildcard.follow(this.#addresses);
    this.#publishCap();
    return wildcard;
  }

  /** Node has no event for an address that appears. */
  #read(): void {
    this.#addresses = readHostAddresses(this.#readAddresses);
    this.#timer = this.#context.clock.setTimer(ADDRESS_POLL_MS, () => {
      this.#read();
      for (const wildcard of this.#wildcards) wildcard.follow(this.#addresses);
      this.#publishCap();
    });
  }

  #publishCap(): void {
    if ([...this.#wildcards].some(({ isCapped }) => isCapped)) this.#signal.refused();
    else this.#signal.left();
  }
}

/**
 * The sockets of a UDP listener on a wildcard address: one, and one for each address of the host, which the kernel
 * prefers. A client drops an answer from another address than it has sent to, and `dgram` does not report that address.
 * The wildcard socket serves addresses that the host does not list (127.0.0.2, `local` routes, IPv6 link-local), beyond
 * `udpWildcardSockets`, or new within seconds.
 */
class WildcardSockets implements UdpListening {
  readonly boundPort: number;
  readonly #context: EngineContext;
  readonly #owner: ListenSocketOwner;
  readonly #onClosed: () => void;
  readonly #main: NodeListenSocket;
  readonly #members = new Map<string, NodeListenSocket>();
  /** The host has more addresses than there may be sockets. */
  isCapped = false;

  constructor(
    context: EngineContext,
    family: Family,
    port: number,
    owner: ListenSocketOwner,
    onClosed: () => void,
  ) {
    this.#context = context;
    this.#owner = owner;
    this.#onClosed = onClosed;
    this.#main = new NodeListenSocket(sharedSocket(family, port), family, owner, context.limits);
    this.boundPort = this.#main.boundPort;
  }

  sessions(): NodeUdpSession[] {
    return this.#all.flatMap((each) => each.sessions());
  }

  leave(served: ReadonlySet<number>): void {
    for (const each of this.#all) each.leave(served);
  }

  async close(): Promise<void> {
    const all = this.#all;
    this.#context.descriptors.release(this.#members.size, 'UDP');
    this.#members.clear();
    this.#onClosed();
    await Promise.all(all.map((each) => each.close()));
  }

  /** Opens a socket for each new address of the host, closes those of removed ones. */
  follow(addresses: readonly string[]): void {
    const { limits, descriptors } = this.#context;
    const { family } = this.#main;
    const most = limits.udpWildcardSockets;
    const wanted = new Set(addresses.filter((each) => familyOf(each) === family));
    for (const [address, listenSocket] of this.#members) {
      if (wanted.has(address)) continue;
      this.#members.delete(address);
      descriptors.release(1, 'UDP');
      void listenSocket.close();
    }
    for (const address of wanted) {
      if (this.#members.has(address)) continue;
      if (this.#members.size >= most || !descriptors.acquire(1, 'UDP')) break;
      try {
        const socket = boundSocket(family, address, this.boundPort, SHARES_PORT);
        const member = new NodeListenSocket(socket, family, this.#owner, limits);
        this.#members.set(address, member);
      } catch {
        // An address may be unusable for a while (IPv6 looks for duplicates first), or its port taken. Until a later
        // reading of the addresses succeeds, the wildcard socket serves it.
        descriptors.release(1, 'UDP');
      }
    }
    this.isCapped = wanted.size > most;
  }

  get #all(): NodeListenSocket[] {
    return [this.#main, ...this.#members.values()];
  }
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

  protected makeSession(
    owner: ServicePort,
    client: SessionClient,
    endpoint: BalancerEndpoint,
  ): NodeUdpSession {
    return new NodeUdpSession(this, owner, client, endpoint, this.#socket, this.#limits);
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
