import { clientSource } from '../../core/listener.ts';
import type { EngineLimits } from '../../limits.ts';
import {
  UdpSession,
  type ClientAddress,
  type ListenSocket,
  type SessionHost,
  type SessionStart,
} from '../../udp/transport.ts';
import type { Loop, Pollable, TurnEnd } from '../loop.ts';
import * as k from '../sys/abi.ts';
import { DatagramSlots, type PeerKey } from '../sys/datagrams.ts';
import { INTEREST } from '../sys/poller.ts';
import { isFull, Sender, type Direction, type Recipient, type Sending } from '../sys/sender.ts';
import type { Sys } from '../sys/sys.ts';

interface LinuxUdpClient extends ClientAddress, Recipient {
  /** Our source address, where there are several. */
  readonly asked: PeerKey | undefined;
}

type ListenSocketWithFd = ListenSocket & { readonly fd: number };

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
  /** Whether messages of several datagrams get through, in each direction. */
  #segmentsIn: boolean;
  segmentsOut: boolean;

  constructor(
    listenSocket: ListenSocketWithFd,
    host: SessionHost,
    start: SessionStart,
    parts: UdpParts,
  ) {
    super(listenSocket, host, start);
    this.#parts = parts;
    this.#segmentsIn = parts.hasSegments;
    this.segmentsOut = parts.hasSegments;
  }

  #bindSource(fd: number): number {
    const { address: client } = this.client;
    const traffic = this.listenSocket.trafficOf(this.client);
    const source = clientSource(this.owner, { traffic, client }, this.endpoint);
    if (source === undefined) return 0;
    return this.#parts.loop.sys.bindSource(fd, this.endpoint.family, source);
  }

  open(): void {
    const { loop } = this.#parts;
    const { sys } = loop;
    const fd = sys.datagram(this.endpoint.family);
    if (fd < 0) {
      this.host.openFailed(this, k.systemError(-fd, 'socket'));
      return;
    }
    sys.setOption(fd, k.SOL_SOCKET, k.SO_RCVBUF, this.#parts.socketBuffer);
    sys.setOption(fd, k.SOL_SOCKET, k.SO_SNDBUF, this.#parts.socketBuffer);
    const bound = this.#bindSource(fd);
    const connected = bound < 0 ? bound : sys.connect(fd, this.endpoint);
    const local = connected < 0 ? undefined : sys.localAddress(fd);
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
      const { sender, requests } = this.#parts;
      if (queue.length === 1) {
        const sent = requests.write(this.#fd, queue[0] ?? 0);
        if (sent < 0) this.notSent('request', 1, -sent);
        else this.countIn(1, sent);
      } else {
        sender.add(this, queue, 0, queue.length, undefined, this.#segmentsIn);
        sender.flush(this.#fd);
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
    else this.segmentsOut = false;
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

export class UdpParts {
  readonly loop: Loop;
  readonly socketBuffer: number;
  /** Datagrams of clients, until they are sent on in the same event. */
  readonly requests: DatagramSlots;
  readonly sender: Sender;
  /** Datagrams of endpoints, until the end of the turn. */
  readonly answers: Answers;
  /** The kernel can split a message into datagrams (since Linux 4.18). */
  readonly hasSegments: boolean;

  constructor(loop: Loop, { udpSocketBuffer }: Pick<EngineLimits, 'udpSocketBuffer'>) {
    const { sys } = loop;
    this.loop = loop;
    this.socketBuffer = udpSocketBuffer;
    this.requests = new DatagramSlots(sys, SLOTS);
    this.sender = new Sender(sys, 'request', this.requests);
    this.answers = new Answers(loop);
    this.hasSegments = takesSegments(sys);
  }
}

/** Sets a segment size of 0, which is the default, and an error where segmentation is not supported. */
function takesSegments(sys: Sys): boolean {
  const fd = sys.datagram(4);
  if (fd < 0) return false;
  const result = sys.setOption(fd, k.SOL_UDP, k.UDP_SEGMENT, 0);
  sys.close(fd);
  return result === 0;
}

/** Collects a turn's answers, to send those of one listening socket together: half the cost with many clients. */
class Answers implements TurnEnd {
  readonly #slots: DatagramSlots;
  readonly #sender: Sender;
  readonly #sessions: LinuxUdpSession[] = [];

  constructor(loop: Loop) {
    this.#slots = new DatagramSlots(loop.sys, SLOTS);
    this.#sender = new Sender(loop.sys, 'answer', this.#slots);
    loop.atTurnEnd(this);
  }

  /** Takes up to `most` datagrams from the session's socket: how many, or a negative error number. */
  receive(session: LinuxUdpSession, fd: number, most: number): number {
    if (this.#sessions.length + most > SLOTS) this.endTurn();
    const first = this.#sessions.length;
    const count = most === 1 ? this.#slots.read(fd, first) : this.#slots.receive(fd, first, most);
    for (let index = 0; index < count; index += 1) this.#sessions.push(session);
    return count;
  }

  endTurn(): void {
    const sessions = this.#sessions;
    let listenSocket = sessions[0]?.listenSocket;
    if (listenSocket === undefined) return;
    for (let start = 0; start < sessions.length;) {
      const session = sessions[start];
      if (session === undefined) break;
      let end = start + 1;
      while (end < sessions.length && sessions[end] === session) end += 1;
      if (session.listenSocket !== listenSocket) {
        this.#sender.flush(listenSocket.fd);
        listenSocket = session.listenSocket;
      }
      // A session that has ended in this turn no longer has a client.
      if (!session.hasEnded) {
        const { client, segmentsOut } = session;
        this.#sender.add(session, IN_ORDER, start, end, client, segmentsOut);
      }
      start = end;
    }
    this.#sender.flush(listenSocket.fd);
    sessions.length = 0;
  }
}
