import { clientSource } from '../../core/listener.ts';
import type { EngineLimits } from '../../limits.ts';
import {
  UdpSession,
  type ListenSocket,
  type SessionClient,
  type SessionStart,
} from '../../udp/transport.ts';
import { INTEREST, type Loop, type Pollable } from '../loop.ts';
import * as k from '../sys/abi.ts';
import { Datagrams, isFull, type Recipient, type Sending } from '../sys/datagrams.ts';

/** Its keys: our address that it asked, where there are several, and its own. */
export type LinuxUdpClient = SessionClient & Recipient;

type ListenSocketWithFd = ListenSocket & { readonly fd: number };

const NOWHERE = { address: '', port: 0 };

const AT_ONCE = 16;
/** After this many consecutive single datagrams, they are taken one by one, at half the cost. */
const SINGLE_ONES = 4;

/** A session whose socket is open as soon as `open` returns. */
export class LinuxUdpSession extends UdpSession implements Pollable, Sending {
  declare readonly client: LinuxUdpClient;
  declare readonly listenSocket: ListenSocketWithFd;
  readonly #parts: UdpParts;
  #fd = -1;
  #singles = SINGLE_ONES;
  /** The turn of the loop in which there was an answer. */
  #answeredIn = -1;
  /** Slots of this event's datagrams from the client. */
  readonly #queue: number[] = [];
  /** Whether messages of several datagrams get through. */
  segments = true;

  constructor(start: SessionStart, parts: UdpParts) {
    super(start);
    this.#parts = parts;
  }

  open(): void {
    const { loop, limits } = this.#parts;
    const { sys } = loop;
    const { endpoint, client } = this;
    const fd = sys.datagram(endpoint.family);
    if (fd < 0) {
      this.host.openFailed(this, k.systemError(-fd, 'socket'));
      return;
    }
    sys.setBufferSizes(fd, limits.udpSocketBuffer);
    const request = { traffic: this.listenSocket.trafficOf(client), client: client.address };
    const source = clientSource(this.owner, request, endpoint);
    const bound = source === undefined ? 0 : sys.bindSource(fd, endpoint.family, source);
    let result = bound < 0 ? bound : sys.connect(fd, endpoint);
    if (result >= 0) result = loop.watch(fd, this, INTEREST.readable);
    this.#fd = fd;
    const error =
      result < 0
        ? k.systemError(-result, bound < 0 ? 'bind' : 'connect')
        : this.connected(sys.localAddress(fd) ?? NOWHERE);
    if (error === undefined) return;
    loop.close(fd);
    this.host.openFailed(this, error);
  }

  /** Queues a datagram of the client until `sendAll`. Returns whether it is the first one. */
  note(slot: number): boolean {
    return this.#queue.push(slot) === 1;
  }

  sendAll(): void {
    const queue = this.#queue;
    if (this.state !== 'open') {
      this.owner.counters.datagramsDropped += queue.length;
    } else {
      this.host.touch(this);
      const { requests } = this.#parts;
      if (queue.length === 1) {
        const sent = requests.write(this.#fd, queue[0] ?? 0);
        if (sent < 0) this.notSent(undefined, 1, -sent);
        else this.countIn(1, sent);
      } else {
        requests.add(this, queue, 0, queue.length, undefined, this.segments);
        requests.flush(this.#fd);
      }
    }
    queue.length = 0;
  }

  ready(): void {
    if (this.state !== 'open') return;
    const count = this.#parts.answers.receive(this, this.#fd, this.#atOnce());
    if (count >= 0) {
      this.#singles = count > 1 ? 0 : this.#singles + 1;
      this.answered();
    } else if (count !== -k.EAGAIN) this.failedWith(k.systemError(-count, 'read'));
  }

  failed(): void {
    this.host.endAll([this]);
  }

  sent(to: Recipient | undefined, datagrams: number, bytes: number): void {
    if (to === undefined) this.countIn(datagrams, bytes);
    else this.countOut(datagrams, bytes);
  }

  notSent(to: Recipient | undefined, datagrams: number, errno: number): boolean {
    if (isFull(errno)) {
      for (let count = 0; count < datagrams; count += 1) this.host.queueFull(this);
      return true;
    }
    this.owner.counters.datagramsDropped += datagrams;
    if (to !== undefined) return true;
    if (this.state === 'open') this.host.failed(this, k.systemError(errno, 'write'));
    return this.state === 'open';
  }

  noSegments(): void {
    this.segments = false;
  }

  end(): number {
    if (this.state === 'open') this.#parts.loop.close(this.#fd);
    this.state = 'ended';
    this.#fd = -1;
    return 0;
  }

  /** How many answers to read at once: more than one if the previous turn had answers, too. */
  #atOnce(): number {
    const { turns } = this.#parts.loop;
    const isNext = turns === this.#answeredIn + 1;
    this.#answeredIn = turns;
    return isNext || this.#singles < SINGLE_ONES ? AT_ONCE : 1;
  }
}

/** Datagrams that one call receives from a listening socket, and answers of one turn that are kept until its end. */
const SLOTS = 64;
const IN_ORDER: readonly number[] = Array.from({ length: SLOTS }, (_, index) => index);

export type UdpParts = ReturnType<typeof udpParts>;

/** What all UDP sockets of a thread share. */
export function udpParts(loop: Loop, limits: EngineLimits) {
  return {
    loop,
    limits,
    /** Datagrams of clients, until they are sent on in the same event. */
    requests: new Datagrams(loop.sys, SLOTS),
    /** Datagrams of endpoints, until the end of the turn. */
    answers: new Answers(loop),
  };
}

/** Collects a turn's answers, to send those of one listening socket together: half the cost with many clients. */
class Answers {
  readonly #datagrams: Datagrams;
  #count = 0;
  #listenFd = -1;

  constructor(loop: Loop) {
    this.#datagrams = new Datagrams(loop.sys, SLOTS);
    loop.atTurnEnd(() => this.endTurn());
  }

  /** Takes up to `most` datagrams from the session's socket: how many, or a negative error number. */
  receive(session: LinuxUdpSession, fd: number, most: number): number {
    const { client, listenSocket, segments } = session;
    if (listenSocket.fd !== this.#listenFd || this.#count + most > SLOTS) this.endTurn();
    this.#listenFd = listenSocket.fd;
    const first = this.#count;
    const datagrams = this.#datagrams;
    const count = most === 1 ? datagrams.read(fd, first) : datagrams.receive(fd, first, most);
    if (count <= 0) return count;
    this.#count += count;
    datagrams.add(session, IN_ORDER, first, this.#count, client, segments);
    return count;
  }

  /** Sends all that there is. Call it before a listening socket closes, too. */
  endTurn(): void {
    if (this.#count > 0) this.#datagrams.flush(this.#listenFd);
    this.#count = 0;
  }
}
