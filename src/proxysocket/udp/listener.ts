import type { Socket } from 'node:dgram';
import { familyOf, type Family } from '../../util/family.ts';
import type { ListenerSockets } from '../core/listener-sockets.ts';
import type { Traffic, ListenSpec } from '../spec.ts';
import type { EngineContext, Listener, ServicePort } from '../core/service-port.ts';
import { sourceFilter } from '../core/source-ranges.ts';
import { Front, type Assignment } from './front.ts';
import type { HostAddresses, HostAddressWatch } from './host-addresses.ts';
import type { SessionTable } from './session-table.ts';
import type { CappedListeners } from './capped-listeners.ts';
import { boundSocket, inheritedSocket, openedSocket, WILDCARD } from './socket.ts';

/** What the listeners of an acceptor share. */
export interface ListenerDeps {
  readonly context: EngineContext;
  readonly table: SessionTable;
  readonly hostAddresses: HostAddressWatch;
  readonly capped: CappedListeners;
  /** Opens the sockets; undefined: Node does. */
  readonly sockets: ListenerSockets | undefined;
}

/**
 * A UDP listener: one socket, and for a wildcard address further ones.
 *
 * An answer has to come from the address that the client asked, or the client drops it. A socket on
 * a wildcard address does not tell which one that was, and its answers leave from the address that
 * the route to the client prefers. So a wildcard listener also opens a socket on every address of
 * the host: the kernel hands a datagram to the most specific socket, and that one answers rightly.
 * The wildcard socket serves what is left: addresses that the host does not list (127.0.0.2, those
 * of `local` routes, IPv6 link-local ones), beyond `udpWildcardSockets`, or that appeared a
 * few seconds ago. For these the answer comes from the address that the route prefers.
 */
export class UdpListener implements Listener {
  readonly protocol = 'UDP';
  readonly address: string;
  readonly boundPort: number;
  readonly family: Family;
  readonly #deps: ListenerDeps;
  /** Listeners of as many threads share the place. */
  readonly #sharing: number;
  /** Descriptors that a socket takes. */
  readonly #perSocket: number;
  readonly #main: Front;
  readonly #members = new Map<string, Front>();
  readonly #onClosed: (listener: UdpListener) => void;
  #assignment: Assignment;
  #syncing: Promise<void> | undefined;
  #closed: Promise<void> | undefined;

  private constructor(
    deps: ListenerDeps,
    { address, group }: ListenSpec,
    socket: Socket,
    assignment: Assignment,
    onClosed: (listener: UdpListener) => void,
  ) {
    this.#deps = deps;
    this.address = address;
    this.#sharing = group?.sockets ?? 1;
    this.#perSocket = deps.sockets?.descriptors ?? 1;
    this.family = familyOf(address);
    this.boundPort = socket.address().port;
    this.#assignment = assignment;
    this.#main = new Front(deps.table, socket, this.family, assignment);
    this.#onClosed = onClosed;
  }

  /** Rejects with the operating system's error. */
  static async open(
    deps: ListenerDeps,
    spec: ListenSpec,
    owner: ServicePort,
    onClosed: (listener: UdpListener) => void,
  ): Promise<UdpListener> {
    const { address, traffic, sourceRanges } = spec;
    const assignment = { owner, traffic, admits: sourceFilter(owner.name, sourceRanges) };
    const socket = await mainSocket(deps, spec);
    const listener = new UdpListener(deps, spec, socket, assignment, onClosed);
    if (isWildcard(address)) {
      await listener.#sync(deps.hostAddresses.subscribe(listener.#onAddresses));
    }
    return listener;
  }

  assign(owner: ServicePort, traffic: Traffic, sourceRanges?: readonly string[]): void {
    this.#assignment = { owner, traffic, admits: sourceFilter(owner.name, sourceRanges) };
    for (const front of this.#fronts()) front.assign(this.#assignment);
  }

  /**
   * Reads no more of what a successor has `served` by now, by inode numbers; the rest is to close. Answers still
   * leave from here, until the last session has ended.
   */
  leave(served: ReadonlySet<number>): void {
    for (const front of this.#fronts()) front.leave(served);
  }

  async close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    this.#deps.hostAddresses.unsubscribe(this.#onAddresses);
    const fronts = this.#fronts();
    this.#deps.capped.delete(this);
    this.#deps.context.descriptors.give(this.#members.size * this.#perSocket, 'UDP');
    this.#members.clear();
    await Promise.all([...fronts.map(async (front) => front.close()), this.#syncing]);
    this.#onClosed(this);
  }

  #fronts(): Front[] {
    return [this.#main, ...this.#members.values()];
  }

  readonly #onAddresses = (addresses: HostAddresses): void => {
    this.#syncing ??= this.#sync(addresses).finally(() => {
      this.#syncing = undefined;
    });
  };

  /** Opens a socket for each new address of the host, and closes those of addresses that are gone. */
  async #sync(addresses: HostAddresses): Promise<void> {
    const { context, table, capped } = this.#deps;
    const wanted = new Set(addresses[this.family]);
    const gone = [...this.#members].filter(([address]) => !wanted.has(address));
    for (const [address, front] of gone) {
      this.#members.delete(address);
      context.descriptors.give(this.#perSocket, 'UDP');
      await front.close();
    }
    if (this.#closed !== undefined) return;
    const most = context.limits.udpWildcardSockets;
    if (wanted.size <= most) capped.delete(this);
    else capped.add(this);
    for (const address of wanted) {
      if (this.#closed !== undefined) return;
      if (this.#members.has(address)) continue;
      if (this.#members.size >= most) return;
      if (!context.descriptors.take(this.#perSocket, 'UDP')) return;
      const socket = await this.#memberSocket(address).catch(notYet);
      if (socket === undefined || this.#closed !== undefined) {
        context.descriptors.give(this.#perSocket, 'UDP');
        socket?.close();
        continue;
      }
      this.#members.set(address, new Front(table, socket, this.family, this.#assignment));
    }
  }

  async #memberSocket(address: string): Promise<Socket> {
    const { sockets } = this.#deps;
    const port = this.boundPort;
    if (sockets === undefined) return boundSocket(this.family, address, port, SHARES_PORT);
    const group = { sockets: this.#sharing, joins: true };
    return openedSocket(this.family, sockets.open('UDP', { address, port, group }));
  }
}

async function mainSocket({ sockets }: ListenerDeps, spec: ListenSpec): Promise<Socket> {
  const { address, port } = spec;
  const family = familyOf(address);
  if (sockets !== undefined) return openedSocket(family, sockets.open('UDP', spec));
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

/**
 * An address may be unusable for a while (IPv6 looks for duplicates first), or its port taken. Until
 * a later reading of the addresses succeeds, the wildcard socket serves it.
 */
function notYet(): undefined {
  return undefined;
}

/** `::` has other spellings; all of them hold nothing but zeros. */
function isWildcard(address: string): boolean {
  return /^[0:.]+$/.test(address);
}
