import { fstatSync } from 'node:fs';
import { familyOf, type Family } from '../../../util/family.ts';
import type { Listener, ServicePort } from '../../core/service-port.ts';
import { sourceFilter, type SourceFilter } from '../../core/source-ranges.ts';
import type { ListenSpec, Traffic } from '../../spec.ts';
import type { Pollable } from '../loop.ts';
import { openListener } from '../open-listener.ts';
import * as k from '../sys/constants.ts';
import type { PeerKey } from '../sys/datagram-slots.ts';
import { systemError } from '../sys/errno.ts';
import { INTEREST } from '../sys/poller.ts';
import type { UdpFront, UdpSession } from './session.ts';
import type { UdpShared } from './shared.ts';

/** An address of ours that clients have asked, and its sessions. */
interface Asked {
  readonly key: PeerKey | undefined;
  readonly source: Uint8Array | undefined;
  readonly sessions: Map<PeerKey, UdpSession>;
}

/**
 * A listening UDP socket and the sessions of its clients.
 *
 * An answer has to come from the address that the client asked, or the client drops it. So a socket on
 * a wildcard address is told for every datagram which address it was sent to, and each of these has
 * sessions of its own, whose answers leave from there.
 */
export class UdpListener implements Listener, Pollable, UdpFront {
  readonly protocol = 'UDP';
  readonly address: string;
  readonly family: Family;
  readonly boundPort: number;
  readonly fd: number;
  readonly #shared: UdpShared;
  readonly #isWildcard: boolean;
  readonly #onClosed: (listener: UdpListener) => void;
  readonly #asked = new Map<PeerKey | undefined, Asked>();
  /** Sessions that have something to send in this event. */
  readonly #touched: UdpSession[] = [];
  #owner: ServicePort;
  #traffic: Traffic;
  #admits: SourceFilter | undefined;
  #state: 'open' | 'left' | 'closed' = 'open';

  /** Throws the system's error. */
  constructor(
    shared: UdpShared,
    spec: ListenSpec,
    owner: ServicePort,
    onClosed: (listener: UdpListener) => void,
  ) {
    this.#shared = shared;
    this.#onClosed = onClosed;
    this.address = spec.address;
    this.family = familyOf(spec.address);
    this.#isWildcard = isWildcard(spec.address);
    this.#owner = owner;
    this.#traffic = spec.traffic;
    this.#admits = sourceFilter(owner.name, spec.sourceRanges);
    this.fd = openDatagrams(shared, spec, this.#isWildcard);
    const { loop } = shared;
    this.boundPort = loop.sys.sockets.localAddress(this.fd)?.port ?? spec.port;
    const watched = loop.watch(this.fd, this, INTEREST.readable);
    if (watched === 0) return;
    loop.close(this.fd);
    throw systemError(-watched, 'epoll_ctl');
  }

  get traffic(): Traffic {
    return this.#traffic;
  }

  /** New clients are served by the new owner at once. Sessions that do not fit any more end. */
  assign(owner: ServicePort, traffic: Traffic, sourceRanges?: readonly string[]): void {
    const sameService = this.#owner === owner && this.#traffic === traffic;
    const admits = sourceFilter(owner.name, sourceRanges);
    this.#owner = owner;
    this.#traffic = traffic;
    this.#admits = admits;
    this.#shared.sessions.endAll(
      this.#all().filter(({ client }) => !sameService || admits?.(client.address) === false),
    );
  }

  forget({ client }: UdpSession): void {
    const asked = this.#asked.get(client.asked);
    asked?.sessions.delete(client.key);
    if (asked?.sessions.size === 0) this.#asked.delete(client.asked);
    this.#closeWhenLeft();
  }

  /**
   * Reads no more if this is one of the sockets that are `served` by a successor, by inode numbers. Answers still
   * leave from here, until the last session has ended; `close` does not wait for that.
   */
  leave(served: ReadonlySet<number>): void {
    if (this.#state !== 'open' || !served.has(fstatSync(this.fd).ino)) return;
    this.#state = 'left';
    this.#shared.loop.unwatch(this.fd);
    this.#closeWhenLeft();
  }

  /** Ends the sessions, whose answers have no way out any more, and frees the port. */
  async close(): Promise<void> {
    if (this.#state !== 'open') return;
    this.#shared.sessions.endAll(this.#all());
    // A successor may have the socket, too: then closing a descriptor does not end the watch.
    this.#shared.loop.unwatch(this.fd);
    this.#end();
  }

  ready(): void {
    const { requests } = this.#shared;
    const count = requests.receive(this.fd, 0, requests.count);
    if (count < 0) {
      if (count !== -k.EAGAIN) this.#owner.counters.datagramsDropped += 1;
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

  #closeWhenLeft(): void {
    if (this.#state === 'left' && this.#asked.size === 0) this.#end();
  }

  #end(): void {
    this.#state = 'closed';
    this.#shared.loop.close(this.fd);
    this.#onClosed(this);
  }

  #all(): UdpSession[] {
    return [...this.#asked.values()].flatMap(({ sessions }) => Array.from(sessions.values()));
  }

  /** The session of a datagram's client; undefined, counted and told, when it gets none. */
  #sessionOf(slot: number): UdpSession | undefined {
    const { requests } = this.#shared;
    const key = requests.sender(slot);
    if (key === undefined || requests.isCut(slot)) {
      this.#owner.counters.datagramsDropped += 1;
      return undefined;
    }
    const asked = this.#isWildcard ? requests.destination(slot) : undefined;
    return this.#asked.get(asked)?.sessions.get(key) ?? this.#begin(slot, key, asked);
  }

  #begin(slot: number, key: PeerKey, askedKey: PeerKey | undefined): UdpSession | undefined {
    const { requests, sessions } = this.#shared;
    const { address, port } = requests.senderAddress(slot);
    if (this.#admits?.(address) === false) {
      sessions.refusals.refuse(this.#owner, { address, port }, 'source');
      return undefined;
    }
    const asked = this.#asked.get(askedKey) ?? {
      key: askedKey,
      source: askedKey === undefined ? undefined : requests.answerControl(slot),
      sessions: new Map<PeerKey, UdpSession>(),
    };
    const client = { address, port, key, asked: askedKey, source: asked.source, slot };
    const session = sessions.begin(this, this.#owner, client);
    if (session === undefined || session.hasEnded) return session;
    // Making room may have ended the last session of this address.
    this.#asked.set(askedKey, asked);
    asked.sessions.set(key, session);
    return session;
  }
}

/** A socket that receives datagrams. Throws the system's error. */
function openDatagrams({ loop, context }: UdpShared, spec: ListenSpec, wildcard: boolean): number {
  const { sockets } = loop.sys;
  const { udpSocketBuffer } = context.limits;
  return openListener(loop, 'UDP', spec, {
    prepare(fd, family) {
      sockets.setOption(fd, k.SOL_SOCKET, k.SO_RCVBUF, udpSocketBuffer);
      sockets.setOption(fd, k.SOL_SOCKET, k.SO_SNDBUF, udpSocketBuffer);
      if (family === 6) sockets.setOption(fd, k.IPPROTO_IPV6, k.IPV6_V6ONLY, 1);
      if (wildcard && family === 4) sockets.setOption(fd, k.IPPROTO_IP, k.IP_PKTINFO, 1);
      if (wildcard && family === 6) {
        sockets.setOption(fd, k.IPPROTO_IPV6, k.IPV6_RECVPKTINFO, 1);
      }
    },
  });
}

/** `::` has other spellings; all of them hold nothing but zeros. */
function isWildcard(address: string): boolean {
  return /^[0:.]+$/.test(address);
}
