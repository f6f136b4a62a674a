import { fstatSync } from 'node:fs';
import { familyOf } from '../../../util/family.ts';
import type { ListenSpec } from '../../spec.ts';
import { Front, isWildcard, type FrontOwner, type UdpListening } from '../../udp/transport.ts';
import type { Pollable } from '../loop.ts';
import { openListener } from '../open-listener.ts';
import * as k from '../sys/constants.ts';
import type { PeerKey } from '../sys/datagram-slots.ts';
import { systemError } from '../sys/errno.ts';
import { INTEREST } from '../sys/poller.ts';
import type { LinuxUdpSession } from './session.ts';
import type { LinuxUdpTransport } from './transport.ts';

/** An address of ours that clients have asked, and its sessions. */
interface Asked {
  readonly key: PeerKey | undefined;
  readonly source: Uint8Array | undefined;
  readonly sessions: Map<PeerKey, LinuxUdpSession>;
}

/**
 * A listening UDP socket and the sessions of its clients.
 *
 * An answer has to come from the address that the client asked, or the client drops it. So a socket on
 * a wildcard address asks the kernel for the address that each datagram was sent to, and each of these has
 * sessions of its own, whose answers leave from there.
 */
export class LinuxFront
  extends Front<LinuxUdpSession>
  implements UdpListening<LinuxUdpSession>, Pollable
{
  readonly boundPort: number;
  readonly fd: number;
  readonly #transport: LinuxUdpTransport;
  readonly #isWildcard: boolean;
  readonly #asked = new Map<PeerKey | undefined, Asked>();
  /** Sessions that have something to send in this event. */
  readonly #touched: LinuxUdpSession[] = [];

  /** Throws the system's error. */
  constructor(transport: LinuxUdpTransport, spec: ListenSpec, owner: FrontOwner<LinuxUdpSession>) {
    super(familyOf(spec.address), owner);
    const { loop } = transport;
    this.#transport = transport;
    this.#isWildcard = isWildcard(spec.address);
    this.fd = openDatagrams(transport, spec, this.#isWildcard);
    this.boundPort = loop.sys.sockets.localAddress(this.fd)?.port ?? spec.port;
    const watched = loop.watch(this.fd, this, INTEREST.readable);
    if (watched === 0) return;
    loop.close(this.fd);
    throw systemError(-watched, 'epoll_ctl');
  }

  fronts(): readonly LinuxFront[] {
    return [this];
  }

  all(): LinuxUdpSession[] {
    return [...this.#asked.values()].flatMap(({ sessions }) => Array.from(sessions.values()));
  }

  /** Ends a session that cannot go on. */
  end(session: LinuxUdpSession): void {
    this.owner.endAll([session]);
  }

  ready(): void {
    const { requests } = this.#transport;
    const count = requests.receive(this.fd, 0, requests.count);
    if (count < 0) {
      if (count !== -k.EAGAIN) this.owner.dropped();
      return;
    }
    for (let slot = 0; slot < count; slot += 1) {
      const session = this.#sessionOf(slot);
      if (session?.note(slot) === true) this.#touched.push(session);
    }
    for (const session of this.#touched) session.sendAll();
    this.#touched.length = 0;
  }

  failed(): void {
    this.#touched.length = 0;
  }

  protected remove({ client }: LinuxUdpSession): void {
    const asked = this.#asked.get(client.asked);
    asked?.sessions.delete(client.key);
    if (asked?.sessions.size === 0) this.#asked.delete(client.asked);
  }

  protected isEmpty(): boolean {
    return this.#asked.size === 0;
  }

  protected stopReading(served: ReadonlySet<number>): boolean {
    if (!served.has(fstatSync(this.fd).ino)) return false;
    this.#transport.loop.unwatch(this.fd);
    return true;
  }

  protected async closeSocket(): Promise<void> {
    // Another process may have the socket, too: then closing a descriptor does not end the watch.
    this.#transport.loop.unwatch(this.fd);
    this.#transport.loop.close(this.fd);
  }

  /** The session of a datagram's client; undefined, counted and reported, when it gets none. */
  #sessionOf(slot: number): LinuxUdpSession | undefined {
    const { requests } = this.#transport;
    const key = requests.sender(slot);
    if (key === undefined || requests.isCut(slot)) {
      this.owner.dropped();
      return undefined;
    }
    const asked = this.#isWildcard ? requests.destination(slot) : undefined;
    return this.#asked.get(asked)?.sessions.get(key) ?? this.#begin(slot, key, asked);
  }

  #begin(slot: number, key: PeerKey, askedKey: PeerKey | undefined): LinuxUdpSession | undefined {
    const { requests } = this.#transport;
    const { address, port } = requests.senderAddress(slot);
    const asked = this.#asked.get(askedKey) ?? {
      key: askedKey,
      source: askedKey === undefined ? undefined : requests.answerControl(slot),
      sessions: new Map<PeerKey, LinuxUdpSession>(),
    };
    const client = { address, port, key, asked: askedKey, source: asked.source, slot };
    const session = this.owner.begin(this, client);
    if (session === undefined || session.hasEnded) return session;
    // Making room may have ended the last session of this address.
    this.#asked.set(askedKey, asked);
    asked.sessions.set(key, session);
    return session;
  }
}

/** A socket that receives datagrams. Throws the system's error. */
function openDatagrams(
  { loop, socketBuffer }: LinuxUdpTransport,
  spec: ListenSpec,
  wildcard: boolean,
): number {
  const { sockets } = loop.sys;
  return openListener(loop, 'UDP', spec, {
    prepare(fd, family) {
      sockets.setOption(fd, k.SOL_SOCKET, k.SO_RCVBUF, socketBuffer);
      sockets.setOption(fd, k.SOL_SOCKET, k.SO_SNDBUF, socketBuffer);
      if (family === 6) sockets.setOption(fd, k.IPPROTO_IPV6, k.IPV6_V6ONLY, 1);
      if (wildcard && family === 4) sockets.setOption(fd, k.IPPROTO_IP, k.IP_PKTINFO, 1);
      if (wildcard && family === 6) {
        sockets.setOption(fd, k.IPPROTO_IPV6, k.IPV6_RECVPKTINFO, 1);
      }
    },
  });
}
