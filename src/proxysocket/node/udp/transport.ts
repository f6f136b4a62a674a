import type { RemoteInfo, Socket } from 'node:dgram';
import { fstatSync } from 'node:fs';
import type { Timer } from '../../../util/clock.ts';
import { familyOf, type Family } from '../../../util/family.ts';
import { hostAddresses, type HostAddress } from '../../../util/host-addresses.ts';
import { LimitSignal } from '../../core/limit-signal.ts';
import type { EngineContext } from '../../core/service-port.ts';
import type { EngineLimits } from '../../limits.ts';
import type { ListenSpec } from '../../spec.ts';
import {
  ClientTable,
  ListenSocket,
  isWildcard,
  type ListenSocketOwner,
  type SessionHost,
  type SessionStart,
  type UdpListening,
  type UdpTransport,
} from '../../udp/transport.ts';
import { NodeUdpSession } from './session.ts';
import { setBufferSizes, boundSocket, handleOf, inheritedSocket, WILDCARD } from './socket.ts';

/** How often the host's addresses are read again while there is a wildcard listener. Milliseconds. */
const ADDRESS_POLL_MS = 5000;

type HostAddresses = Record<Family, readonly string[]>;

/** The host's addresses. Link-local ones of IPv6 need a zone, and every pod interface of a node has one. */
export function readHostAddresses(
  read: () => readonly HostAddress[] = hostAddresses,
): HostAddresses {
  const usable = read()
    .map(({ address }) => address)
    .filter((address) => !/^fe[89ab]/i.test(address));
  const of = (family: Family): string[] => [
    ...new Set(usable.filter((address) => familyOf(address) === family)),
  ];
  return { 4: of(4), 6: of(6) };
}

export interface NodeUdpOptions {
  /**
   * The addresses on which a listener on the wildcard address opens further sockets. Default: all of the host,
   * which would be too many where a portal has added one for each service.
   */
  readonly hostAddresses?: () => readonly HostAddress[];
}

export class NodeUdpTransport implements UdpTransport {
  readonly context: EngineContext;
  readonly #readAddresses: NodeUdpOptions['hostAddresses'];
  #addresses: HostAddresses = { 4: [], 6: [] };
  readonly #wildcards = new Set<Listening>();
  #timer: Timer | undefined;
  /** Listeners at the limit. Its end is published once, when the last one has left it. */
  readonly #capped = new Set<object>();
  readonly #signal: LimitSignal;

  constructor(context: EngineContext, options: NodeUdpOptions = {}) {
    this.context = context;
    this.#readAddresses = options.hostAddresses;
    const { udpWildcardSockets } = context.limits;
    this.#signal = new LimitSignal('udp-wildcard-sockets', () => udpWildcardSockets);
  }

  async listen(spec: ListenSpec, owner: ListenSocketOwner): Promise<UdpListening> {
    const { address, port } = spec;
    const family = familyOf(address);
    const isOnAll = isWildcard(address);
    const opening = isOnAll ? sharedSocket(family, port) : boundSocket(family, address, port);
    const listening = new Listening(this, spec, await opening, owner);
    if (isOnAll) {
      this.#wildcards.add(listening);
      if (this.#timer === undefined) this.#read();
      await listening.follow(this.#addresses);
    }
    return listening;
  }

  closed(listening: Listening): void {
    this.setCapped(listening, false);
    if (!this.#wildcards.delete(listening) || this.#wildcards.size > 0) return;
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  /** Node has no event for an address that appears. */
  #read(): void {
    this.#addresses = readHostAddresses(this.#readAddresses);
    this.#timer = this.context.clock.setTimer(ADDRESS_POLL_MS, () => {
      this.#read();
      for (const listening of this.#wildcards) void listening.follow(this.#addresses);
    });
  }

  setCapped(listener: object, isCapped: boolean): void {
    if (isCapped) {
      this.#capped.add(listener);
      this.#signal.refused();
    } else if (this.#capped.delete(listener) && this.#capped.size === 0) this.#signal.left();
  }
}

/**
 * The sockets of a UDP listener: one, and for a wildcard address one for each address of the host, which the kernel
 * prefers. A client drops an answer from another address than it has sent to, and `dgram` does not report that address.
 * The wildcard socket serves addresses that the host does not list (127.0.0.2, `local` routes, IPv6 link-local), beyond
 * `udpWildcardSockets`, or new within seconds.
 */
class Listening implements UdpListening {
  readonly boundPort: number;
  readonly #transport: NodeUdpTransport;
  readonly #family: Family;
  readonly #owner: ListenSocketOwner;
  readonly #main: NodeListenSocket;
  readonly #members = new Map<string, NodeListenSocket>();
  #syncing: Promise<void> | undefined;
  #closed: Promise<void> | undefined;

  constructor(
    transport: NodeUdpTransport,
    { address }: ListenSpec,
    socket: Socket,
    owner: ListenSocketOwner,
  ) {
    this.#transport = transport;
    this.#family = familyOf(address);
    this.#owner = owner;
    this.#main = this.#listenSocket(socket);
    this.boundPort = socket.address().port;
  }

  listenSockets(): NodeListenSocket[] {
    return [this.#main, ...this.#members.values()];
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    this.#transport.closed(this);
    const listenSockets = this.listenSockets();
    this.#transport.context.descriptors.release(this.#members.size, 'UDP');
    this.#members.clear();
    await Promise.all([
      ...listenSockets.map((listenSocket) => listenSocket.close()),
      this.#syncing,
    ]);
  }

  #listenSocket(socket: Socket): NodeListenSocket {
    return new NodeListenSocket(socket, this.#family, this.#owner, this.#transport.context.limits);
  }

  /** Opens a socket for each new address of the host, and closes those of removed addresses. */
  follow(addresses: HostAddresses): Promise<void> {
    this.#syncing ??= this.#sync(addresses).finally(() => {
      this.#syncing = undefined;
    });
    return this.#syncing;
  }

  async #sync(addresses: HostAddresses): Promise<void> {
    const { limits, descriptors } = this.#transport.context;
    const wanted = new Set(addresses[this.#family]);
    for (const [address, listenSocket] of this.#members) {
      if (wanted.has(address)) continue;
      this.#members.delete(address);
      descriptors.release(1, 'UDP');
      await listenSocket.close();
    }
    if (this.#closed !== undefined) return;
    const most = limits.udpWildcardSockets;
    this.#transport.setCapped(this, wanted.size > most);
    for (const address of wanted) {
      if (this.#closed !== undefined) return;
      if (this.#members.has(address)) continue;
      if (this.#members.size >= most || !descriptors.acquire(1, 'UDP')) return;
      // An address may be unusable for a while (IPv6 looks for duplicates first), or its port taken. Until a later
      // reading of the addresses succeeds, the wildcard socket serves it.
      const socket = await boundSocket(this.#family, address, this.boundPort, SHARES_PORT).catch(
        () => undefined,
      );
      if (socket === undefined || this.#closed !== undefined) {
        descriptors.release(1, 'UDP');
        socket?.close();
        continue;
      }
      this.#members.set(address, this.#listenSocket(socket));
    }
  }
}

class NodeListenSocket extends ListenSocket {
  readonly #socket: Socket;
  readonly #limits: EngineLimits;
  readonly #sessions = new ClientTable<NodeUdpSession>();

  constructor(socket: Socket, family: Family, owner: ListenSocketOwner, limits: EngineLimits) {
    super(family, owner);
    this.#socket = socket;
    this.#limits = limits;
    setBufferSizes(socket, limits.udpSocketBuffer);
    socket.on('message', this.#onMessage);
    // Windows reports here that an answer did not reach a client (ECONNRESET), and any system may fail to hand over a
    // datagram. The socket keeps receiving after an error.
    socket.on('error', () => owner.dropped());
  }

  newSession(host: SessionHost, start: SessionStart): NodeUdpSession {
    return new NodeUdpSession(this, host, start, this.#socket, this.#limits);
  }

  all(): NodeUdpSession[] {
    return [...this.#sessions.values()];
  }

  protected remove(session: NodeUdpSession): void {
    this.#sessions.delete(session.client, session);
  }

  protected isEmpty(): boolean {
    return this.#sessions.isEmpty;
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

  readonly #onMessage = (message: Buffer, remote: RemoteInfo): void => {
    const session = this.#sessions.get(remote.address, remote.port) ?? this.#begin(remote);
    session?.forward(message);
  };

  #begin({ address, port }: RemoteInfo): NodeUdpSession | undefined {
    if (port === 0) {
      // Such a client cannot be answered, and `dgram` would throw.
      this.owner.dropped();
      return undefined;
    }
    const session = this.owner.begin(this, { address, port }) as NodeUdpSession | undefined;
    if (session !== undefined && !session.hasEnded) this.#sessions.add(session.client, session);
    return session;
  }
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
async function sharedSocket(family: Family, port: number): Promise<Socket> {
  const inherited = await inheritedSocket(family, WILDCARD[family], port);
  if (inherited !== undefined) return inherited;
  const probe = await boundSocket(family, WILDCARD[family], port);
  if (!SHARES_PORT) return probe;
  const { port: free } = probe.address();
  probe.close();
  try {
    return await boundSocket(family, WILDCARD[family], free, true);
  } catch {
    // Some sandboxes have no shared ports; any other error appears here.
    return boundSocket(family, WILDCARD[family], free);
  }
}
