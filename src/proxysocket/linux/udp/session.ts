import {
  UdpSession,
  type ListenSocket,
  type SessionHost,
  type SessionStart,
  type ClientAddress,
} from '../../udp/transport.ts';
import { clientSource } from '../../core/clients.ts';
import type { Pollable } from '../loop.ts';
import * as k from '../sys/abi.ts';
import type { PeerKey } from '../sys/datagrams.ts';
import { INTEREST } from '../sys/poller.ts';
import {
  isFull,
  type Direction,
  type Recipient,
  type Sender,
  type Sending,
} from '../sys/sender.ts';
import type { AnsweringSession, UdpParts } from './parts.ts';

/** A client as its listening socket knows it. */
interface LinuxUdpClient extends ClientAddress, Recipient {
  /** Our source address, where there are several. */
  readonly asked: PeerKey | undefined;
}

export interface LinuxSessionListenSocket extends ListenSocket {
  readonly fd: number;
  /** Ends a session after a fatal error. */
  end(session: LinuxUdpSession): void;
}

/** Maximum number of datagrams taken together. */
const AT_ONCE = 16;
/** After this many consecutive single datagrams, they are taken one by one, at half the cost. */
const SINGLE_ONES = 4;

/** A session whose socket is open as soon as `open` returns. */
export class LinuxUdpSession extends UdpSession implements Pollable, Sending, AnsweringSession {
  declare readonly client: LinuxUdpClient;
  declare readonly listenSocket: LinuxSessionListenSocket;
  readonly #parts: UdpParts;
  #fd = -1;
  /** Events in a row with no more than one answer. */
  #singles = SINGLE_ONES;
  /** The turn of the loop in which there was an answer. */
  #answeredIn = -1;
  /** Slots of this event's datagrams from the client. */
  readonly #queue: number[] = [];
  /** Whether messages of several datagrams get through, in each direction. */
  #segmentsIn: boolean;
  #segmentsOut: boolean;

  constructor(
    listenSocket: LinuxSessionListenSocket,
    host: SessionHost,
    start: SessionStart,
    parts: UdpParts,
  ) {
    super(listenSocket, host, start);
    this.#parts = parts;
    this.#segmentsIn = parts.hasSegments;
    this.#segmentsOut = parts.hasSegments;
  }

  #bindSource(fd: number): number {
    const { address: client } = this.client;
    const traffic = this.listenSocket.trafficOf(this.client);
    const source = clientSource(this.owner, { traffic, client }, this.endpoint);
    if (source === undefined) return 0;
    return this.#parts.loop.sys.sockets.bindSource(fd, this.endpoint.family, source);
  }

  open(): void {
    const { loop } = this.#parts;
    const { sockets } = loop.sys;
    const fd = sockets.datagram(this.endpoint.family);
    if (fd < 0) {
      this.host.openFailed(this, k.systemError(-fd, 'socket'));
      return;
    }
    sockets.setOption(fd, k.SOL_SOCKET, k.SO_RCVBUF, this.#parts.socketBuffer);
    sockets.setOption(fd, k.SOL_SOCKET, k.SO_SNDBUF, this.#parts.socketBuffer);
    const bound = this.#bindSource(fd);
    const connected = bound < 0 ? bound : sockets.connect(fd, this.endpoint);
    const local = connected < 0 ? undefined : sockets.localAddress(fd);
    let errno = Math.max(0, -connected);
    if (local !== undefined && this.isOwnAddress(local)) errno = k.ECONNREFUSED;
    if (errno === 0) errno = -loop.watch(fd, this, INTEREST.readable);
    if (errno !== 0 || local === undefined) {
      loop.close(fd);
      this.host.openFailed(this, k.systemError(errno, bound < 0 ? 'bind' : 'connect'));
      return;
    }
    this.#fd = fd;
    this.state = 'open';
    this.host.opened(this, local);
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
      if (queue.length === 1) this.#sendOne(queue[0] ?? 0);
      else {
        const { sender } = this.#parts;
        sender.add(this, queue, 0, queue.length, undefined, this.#segmentsIn);
        sender.flush(this.#fd);
      }
    }
    queue.length = 0;
  }

  /** The socket has datagrams of the endpoint, or an ICMP error. */
  ready(): void {
    if (this.state !== 'open') return;
    const count = this.#parts.answers.receive(this, this.#fd, this.#atOnce());
    if (count >= 0) {
      this.#singles = count > 1 ? 0 : this.#singles + 1;
      this.answered();
    } else if (count !== -k.EAGAIN) this.failedWith(k.systemError(-count, 'read'));
  }

  failed(): void {
    this.listenSocket.end(this);
  }

  addAnswers(sender: Sender, slots: readonly number[], from: number, end: number): void {
    sender.add(this, slots, from, end, this.client, this.#segmentsOut);
  }

  sent(direction: Direction, datagrams: number, bytes: number): void {
    if (direction === 'request') this.countIn(datagrams, bytes);
    else this.countOut(datagrams, bytes);
  }

  notSent(direction: Direction, datagrams: number, errno: number): boolean {
    if (isFull(errno)) {
      for (let count = 0; count < datagrams; count += 1) this.host.queueFull(this);
      return true;
    }
    this.owner.counters.datagramsDropped += datagrams;
    if (direction === 'answer') return true;
    if (!this.hasEnded) this.host.failed(this, k.systemError(errno, 'write'));
    return !this.hasEnded;
  }

  noSegments(direction: Direction): void {
    if (direction === 'request') this.#segmentsIn = false;
    else this.#segmentsOut = false;
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

  #sendOne(slot: number): void {
    const sent = this.#parts.requests.write(this.#fd, slot);
    if (sent < 0) this.notSent('request', 1, -sent);
    else this.countIn(1, sent);
  }
}
