import { fstatSync } from 'node:fs';
import { familyOf, isWildcard } from '../../../util/family.ts';
import type { EngineLimits } from '../../limits.ts';
import type { ListenSpec } from '../../spec.ts';
import {
  ListenSocket,
  type ListenSocketOwner,
  type SessionStart,
  type UdpTransport,
} from '../../udp/transport.ts';
import type { Loop, Pollable } from '../loop.ts';
import { closeListener, openListener, watchListener } from '../open-listener.ts';
import * as k from '../sys/abi.ts';
import type { PeerKey } from '../sys/datagrams.ts';
import { LinuxUdpSession, udpParts, type UdpParts } from './session.ts';

export function linuxUdp(loop: Loop, limits: EngineLimits): UdpTransport {
  const parts = udpParts(loop, limits);
  return { listen: async (spec, owner) => new LinuxListenSocket(parts, spec, owner) };
}

/**
 * A listening UDP socket and the sessions of its clients. A client drops an answer from another address than it has
 * sent to. So on a wildcard address each address that clients ask has sessions of its own, whose answers leave from
 * there.
 */
class LinuxListenSocket extends ListenSocket<LinuxUdpSession> implements Pollable {
  readonly boundPort: number;
  readonly fd: number;
  readonly #parts: UdpParts;
  readonly #isWildcard: boolean;
  /** Sessions that have something to send in this event. */
  readonly #touched: LinuxUdpSession[] = [];

  constructor(parts: UdpParts, spec: ListenSpec, owner: ListenSocketOwner) {
    super(familyOf(spec.address), owner);
    this.#parts = parts;
    const { loop, limits } = parts;
    this.#isWildcard = isWildcard(spec.address);
    this.fd = openListener(loop.sys, 'UDP', spec, limits);
    this.boundPort = watchListener(loop, this.fd, this);
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

  protected makeSession(start: SessionStart): LinuxUdpSession {
    return new LinuxUdpSession(start, this.#parts);
  }

  protected stopReading(served: ReadonlySet<number>): boolean {
    if (!served.has(fstatSync(this.fd).ino)) return false;
    this.#parts.loop.unwatch(this.fd);
    return true;
  }

  protected async closeSocket(): Promise<void> {
    this.#parts.answers.endTurn();
    closeListener(this.#parts.loop, this.fd);
  }

  /** The session of a datagram's client; undefined, counted and reported, when it is refused. */
  #sessionOf(slot: number): LinuxUdpSession | undefined {
    const { requests } = this.#parts;
    const key = requests.sender(slot);
    if (key === undefined) {
      this.owner.dropped();
      return undefined;
    }
    const asked = this.#isWildcard ? requests.destination(slot) : undefined;
    return this.known.get(asked, key) ?? this.#begin(slot, key, asked);
  }

  #begin(slot: number, key: PeerKey, asked: PeerKey | undefined): LinuxUdpSession | undefined {
    const { requests } = this.#parts;
    const [other] = this.known.of(asked);
    const source =
      asked === undefined ? undefined : (other?.client.source ?? requests.answerControl(slot));
    const client = { ...requests.senderAddress(slot), keys: [asked, key], key, source } as const;
    return this.begin(client);
  }
}
