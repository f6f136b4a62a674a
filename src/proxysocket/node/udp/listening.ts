import type { Socket } from 'node:dgram';
import { familyOf, type Family } from '../../../util/family.ts';
import { LimitSignal } from '../../core/limit-signal.ts';
import type { EngineContext } from '../../core/service-port.ts';
import type { ListenSpec } from '../../spec.ts';
import { isWildcard, type FrontOwner, type UdpListening } from '../../udp/transport.ts';
import { NodeFront } from './front.ts';
import type { HostAddresses, HostAddressWatch } from './host-addresses.ts';
import type { NodeUdpSession } from './session.ts';
import { boundSocket, inheritedSocket, WILDCARD } from './socket.ts';

/** What the listening sockets of a transport share. */
export interface ListenParts {
  readonly context: EngineContext;
  readonly hostAddresses: HostAddressWatch;
  /** Wildcard listeners that may not open a socket for each address of the host. */
  readonly capped: CappedListeners;
}

/**
 * The sockets of a UDP listener: one, and for a wildcard address further ones.
 *
 * An answer has to come from the address that the client asked, or the client drops it. A socket on a wildcard address
 * does not know which one that was, and its answers leave from the address that the route to the client prefers. So a
 * wildcard listener also opens a socket on every address of the host: the kernel hands a datagram to the most specific
 * socket, and that one answers rightly. The wildcard socket serves what is left: addresses that the host does not list
 * (127.0.0.2, those of `local` routes, IPv6 link-local ones), beyond `udpWildcardSockets`, or that appeared a few
 * seconds ago. For these the answer comes from the address that the route prefers.
 */
export class NodeUdpListening implements UdpListening<NodeUdpSession> {
  readonly boundPort: number;
  readonly #parts: ListenParts;
  readonly #family: Family;
  readonly #owner: FrontOwner<NodeUdpSession>;
  readonly #main: NodeFront;
  readonly #members = new Map<string, NodeFront>();
  #syncing: Promise<void> | undefined;
  #closed: Promise<void> | undefined;

  private constructor(
    parts: ListenParts,
    { address }: ListenSpec,
    socket: Socket,
    owner: FrontOwner<NodeUdpSession>,
  ) {
    this.#parts = parts;
    this.#family = familyOf(address);
    this.#owner = owner;
    this.#main = this.#front(socket);
    this.boundPort = socket.address().port;
  }

  /** Rejects with the operating system's error. */
  static async open(
    parts: ListenParts,
    spec: ListenSpec,
    owner: FrontOwner<NodeUdpSession>,
  ): Promise<NodeUdpListening> {
    const listening = new NodeUdpListening(parts, spec, await mainSocket(spec), owner);
    if (isWildcard(spec.address)) {
      await listening.#sync(parts.hostAddresses.subscribe(listening.#onAddresses));
    }
    return listening;
  }

  fronts(): NodeFront[] {
    return [this.#main, ...this.#members.values()];
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    const { hostAddresses, capped, context } = this.#parts;
    hostAddresses.unsubscribe(this.#onAddresses);
    capped.delete(this);
    const fronts = this.fronts();
    context.descriptors.give(this.#members.size, 'UDP');
    this.#members.clear();
    await Promise.all([...fronts.map((front) => front.close()), this.#syncing]);
  }

  #front(socket: Socket): NodeFront {
    const { udpSocketBuffer } = this.#parts.context.limits;
    return new NodeFront(socket, this.#family, this.#owner, udpSocketBuffer);
  }

  readonly #onAddresses = (addresses: HostAddresses): void => {
    this.#syncing ??= this.#sync(addresses).finally(() => {
      this.#syncing = undefined;
    });
  };

  /** Opens a socket for each new address of the host, and closes those of addresses that are gone. */
  async #sync(addresses: HostAddresses): Promise<void> {
    const { limits, descriptors } = this.#parts.context;
    const wanted = new Set(addresses[this.#family]);
    for (const [address, front] of this.#members) {
      if (wanted.has(address)) continue;
      this.#members.delete(address);
      descriptors.give(1, 'UDP');
      await front.close();
    }
    if (this.#closed !== undefined) return;
    const most = limits.udpWildcardSockets;
    if (wanted.size <= most) this.#parts.capped.delete(this);
    else this.#parts.capped.add(this);
    for (const address of wanted) {
      if (this.#closed !== undefined) return;
      if (this.#members.has(address)) continue;
      if (this.#members.size >= most || !descriptors.take(1, 'UDP')) return;
      // An address may be unusable for a while (IPv6 looks for duplicates first), or its port taken. Until a later
      // reading of the addresses succeeds, the wildcard socket serves it.
      const socket = await boundSocket(this.#family, address, this.boundPort, SHARES_PORT).catch(
        () => undefined,
      );
      if (socket === undefined || this.#closed !== undefined) {
        descriptors.give(1, 'UDP');
        socket?.close();
        continue;
      }
      this.#members.set(address, this.#front(socket));
    }
  }
}

/** The limit is reached while there is a listener: as many as there are node ports reach and leave it together. */
export class CappedListeners {
  readonly #listeners = new Set<object>();
  readonly #signal: LimitSignal;

  /** `most`: sockets for single addresses that a listener may open. */
  constructor(most: number) {
    this.#signal = new LimitSignal('udp-wildcard-sockets', () => most);
  }

  add(listener: object): void {
    this.#listeners.add(listener);
    this.#signal.refused();
  }

  delete(listener: object): void {
    if (this.#listeners.delete(listener) && this.#listeners.size === 0) this.#signal.left();
  }
}

async function mainSocket({ address, port }: ListenSpec): Promise<Socket> {
  const family = familyOf(address);
  return isWildcard(address) ? sharedSocket(family, port) : boundSocket(family, address, port);
}

/**
 * Linux lets a wildcard socket and one on a single address have the same port only if both ask to
 * share it; Windows does so by itself. Elsewhere the wildcard socket stays alone.
 */
const SHARES_PORT = process.platform === 'linux';

/**
 * A socket on the wildcard address that sockets of this user may join on single addresses. A second
 * one on the wildcard address itself could join, too, and take a share of the clients, so this looks
 * first with an exclusive socket whether the port is free.
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
    // Some sandboxes have no shared ports; if something else is wrong, this says what.
    return boundSocket(family, WILDCARD[family], free);
  }
}
