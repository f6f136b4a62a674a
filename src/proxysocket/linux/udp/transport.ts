import { fstatSync } from 'node:fs';
import { familyOf } from '../../../util/family.ts';
import type { EngineLimits } from '../../limits.ts';
import type { ListenSpec } from '../../spec.ts';
import {
  ListenSocket,
  isWildcard,
  type ListenSocketOwner,
  type SessionHost,
  type SessionStart,
  type UdpListening,
  type UdpTransport,
} from '../../udp/transport.ts';
import type { Loop, Pollable } from '../loop.ts';
import { openListener } from '../open-listener.ts';
import * as k from '../sys/abi.ts';
import type { PeerKey } from '../sys/datagrams.ts';
import { INTEREST } from '../sys/poller.ts';
import { LinuxUdpSession, UdpParts } from './session.ts';

export function linuxUdp(loop: Loop, limits: EngineLimits): UdpTransport {
  const parts = new UdpParts(loop, limits);
  return { listen: async (spec, owner) => new LinuxListenSocket(parts, spec, owner) };
}

interface Asked {
  readonly source: Uint8Array | undefined;
  readonly sessions: Map<PeerKey, LinuxUdpSession>;
}

/**
 * A listening UDP socket and the sessions of its clients. A client drops an answer from another address than it has
 * sent to. So on a wildcard address each address that clients ask has sessions of its own, whose answers leave from
 * there.
 */
class LinuxListenSocket extends ListenSocket implements UdpListening, Pollable {
  readonly boundPort: number;
  readonly fd: number;
  readonly #parts: UdpParts;
  readonly #isWildcard: boolean;
  readonly #asked = new Map<PeerKey | undefined, Asked>();
  /** Sessions that have something to send in this event. */
  readonly #touched: LinuxUdpSession[] = [];

  constructor(parts: UdpParts, spec: ListenSpec, owner: ListenSocketOwner) {
    super(familyOf(spec.address), owner);
    const { loop } = parts;
    this.#parts = parts;
    const { socketBuffer } = parts;
    const { sys } = loop;
    const isOnAll = isWildcard(spec.address);
    this.#isWildcard = isOnAll;
    this.fd = openListener(loop, 'UDP', spec, {
      prepare(fd, family) {
        sys.setOption(fd, k.SOL_SOCKET, k.SO_RCVBUF, socketBuffer);
        sys.setOption(fd, k.SOL_SOCKET, k.SO_SNDBUF, socketBuffer);
        if (family === 6) sys.setOption(fd, k.IPPROTO_IPV6, k.IPV6_V6ONLY, 1);
        if (isOnAll && family === 4) sys.setOption(fd, k.IPPROTO_IP, k.IP_PKTINFO, 1);
        if (isOnAll && family === 6) sys.setOption(fd, k.IPPROTO_IPV6, k.IPV6_RECVPKTINFO, 1);
      },
    });
    this.boundPort = loop.sys.localAddress(this.fd)?.port ?? spec.port;
    const watched = loop.watch(this.fd, this, INTEREST.readable);
    if (watched === 0) return;
    loop.close(this.fd);
    throw k.systemError(-watched, 'epoll_ctl');
  }

  listenSockets(): readonly LinuxListenSocket[] {
    return [this];
  }

  newSession(host: SessionHost, start: SessionStart): LinuxUdpSession {
    return new LinuxUdpSession(this, host, start, this.#parts);
  }

  all(): LinuxUdpSession[] {
    return [...this.#asked.values()].flatMap(({ sessions }) => Array.from(sessions.values()));
  }

  ready(): void {
    const { requests } = this.#parts;
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
    this.#parts.loop.unwatch(this.fd);
    return true;
  }

  protected async closeSocket(): Promise<void> {
    // If another process has the socket as well, closing a descriptor does not end the watch.
    this.#parts.loop.unwatch(this.fd);
    this.#parts.loop.close(this.fd);
  }

  /** The session of a datagram's client; undefined, counted and reported, when it is refused. */
  #sessionOf(slot: number): LinuxUdpSession | undefined {
    const { requests } = this.#parts;
    const key = requests.sender(slot);
    if (key === undefined || requests.isCut(slot)) {
      this.owner.dropped();
      return undefined;
    }
    const asked = this.#isWildcard ? requests.destination(slot) : undefined;
    return this.#asked.get(asked)?.sessions.get(key) ?? this.#begin(slot, key, asked);
  }

  #begin(slot: number, key: PeerKey, askedKey: PeerKey | undefined): LinuxUdpSession | undefined {
    const { requests } = this.#parts;
    const { address, port } = requests.senderAddress(slot);
    const asked = this.#asked.get(askedKey) ?? {
      source: askedKey === undefined ? undefined : requests.answerControl(slot),
      sessions: new Map<PeerKey, LinuxUdpSession>(),
    };
    const client = { address, port, key, asked: askedKey, source: asked.source };
    const session = this.owner.begin(this, client) as LinuxUdpSession | undefined;
    if (session === undefined || session.hasEnded) return session;
    // Making room may have ended the last session of this address.
    this.#asked.set(askedKey, asked);
    asked.sessions.set(key, session);
    return session;
  }
}
