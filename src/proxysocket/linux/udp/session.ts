import type { BalancerEndpoint } from '../../../roundrobin/types.ts';
import type { ServicePort } from '../../core/service-port.ts';
import type { ClientAddress } from '../../udp/tables.ts';
import type { IdleLane } from '../../core/timers.ts';
import type { Exit, SessionHost, SessionStart, UdpSession } from '../../udp/transport.ts';
import type { Pollable } from '../loop.ts';
import { EAGAIN, ECONNREFUSED, SO_RCVBUF, SO_SNDBUF, SOL_SOCKET } from '../sys/constants.ts';
import { systemError } from '../sys/errno.ts';
import type { PeerKey } from '../sys/datagram-slots.ts';
import { SOCKADDR_IN6_BYTES, SOCKADDR_IN_BYTES } from '../sys/layout.ts';
import { INTEREST } from '../sys/poller.ts';
import type { Recipient } from '../sys/send-list.ts';
import { isFull, type Sender, type Sending, type Way } from './outgoing.ts';
import type { LinuxFront } from './front.ts';
import type { LinuxUdpTransport } from './transport.ts';

/** Who a client is, for its listening socket. */
export interface UdpClient extends ClientAddress {
  readonly key: PeerKey;
  /** Which address of ours it has asked, where there are several. */
  readonly asked: PeerKey | undefined;
  /** What makes answers leave from that address. */
  readonly source: Uint8Array | undefined;
  /** Its first datagram. */
  readonly slot: number;
}

const NONE: readonly BalancerEndpoint[] = [];
/** Datagrams that are taken together where there are several. */
const AT_ONCE = 16;
/** So often in a row there was only one, and from then on they are taken one by one, which costs half. */
const SINGLE_ONES = 4;

/** One client port of one listening socket, and the connected socket to its endpoint. */
export class LinuxUdpSession implements UdpSession<LinuxUdpSession>, Pollable, Sending {
  readonly client: UdpClient;
  readonly front: LinuxFront;
  readonly owner: ServicePort;
  readonly hops: number;
  exit: Exit<LinuxUdpSession> | undefined = undefined;
  tried: readonly BalancerEndpoint[] = NONE;
  madeRoom = false;
  endpoint: BalancerEndpoint;
  datagramsIn = 0;
  datagramsOut = 0;

  lane: IdleLane<LinuxUdpSession> | undefined = undefined;
  older: LinuxUdpSession | undefined = undefined;
  newer: LinuxUdpSession | undefined = undefined;
  usedAt = 0;

  readonly #transport: LinuxUdpTransport;
  readonly #host: SessionHost<LinuxUdpSession>;
  #state: 'opening' | 'open' | 'ended' = 'opening';
  #fd = -1;
  /** Events in a row with no more than one answer. */
  #singles = SINGLE_ONES;
  /** The turn of the loop in which there was an answer. */
  #answeredIn = -1;
  /** Slots of this event's datagrams from the client. */
  readonly #queue: number[] = [];
  readonly #recipient: Recipient;
  /** Whether messages of several datagrams get through, each way. */
  #segmentsIn: boolean;
  #segmentsOut: boolean;

  constructor(
    transport: LinuxUdpTransport,
    host: SessionHost<LinuxUdpSession>,
    start: SessionStart<LinuxFront>,
  ) {
    this.#transport = transport;
    this.#host = host;
    this.front = start.front;
    this.owner = start.owner;
    this.client = start.client as UdpClient;
    this.endpoint = start.endpoint;
    this.hops = start.hops;
    this.#segmentsIn = transport.hasSegments;
    this.#segmentsOut = transport.hasSegments;
    const { requests, names } = transport;
    const { slot, source } = this.client;
    this.#recipient = {
      name: names.take(requests.names, requests.nameOffset(slot)),
      nameLength: start.front.family === 4 ? SOCKADDR_IN_BYTES : SOCKADDR_IN6_BYTES,
      source,
    };
  }

  get isOpen(): boolean {
    return this.#state === 'open';
  }

  get hasEnded(): boolean {
    return this.#state === 'ended';
  }

  /** Opens the backend socket, which is done when this returns. */
  open(): void {
    const { loop } = this.#transport;
    const { sockets } = loop.sys;
    const fd = sockets.datagram(this.endpoint.family);
    if (fd < 0) {
      this.#host.openFailed(this, systemError(-fd, 'socket'));
      return;
    }
    sockets.setOption(fd, SOL_SOCKET, SO_RCVBUF, this.#host.socketBuffer);
    sockets.setOption(fd, SOL_SOCKET, SO_SNDBUF, this.#host.socketBuffer);
    const connected = sockets.connect(fd, this.#transport.sockaddr(this.endpoint));
    const local = connected < 0 ? undefined : sockets.localAddress(fd);
    const { address, port } = this.endpoint;
    let errno = Math.max(0, -connected);
    // An endpoint of this host that is not there, and whose port the kernel chose for our side.
    if (local?.port === port && local.address === address) errno = ECONNREFUSED;
    if (errno === 0) errno = -loop.watch(fd, this, INTEREST.readable);
    if (errno !== 0 || local === undefined) {
      loop.close(fd);
      this.#host.openFailed(this, systemError(errno, 'connect'));
      return;
    }
    this.#fd = fd;
    this.#state = 'open';
    this.#host.opened(this, local);
  }

  /** Notes a datagram of the client; `sendAll` has to follow. Returns whether it is the first one. */
  note(slot: number): boolean {
    return this.#queue.push(slot) === 1;
  }

  /** Passes on what has been noted. */
  sendAll(): void {
    const queue = this.#queue;
    if (this.#state !== 'open') {
      this.owner.counters.datagramsDropped += queue.length;
    } else {
      this.#host.touch(this);
      if (queue.length === 1) this.#sendOne(queue[0] ?? 0);
      else {
        const { sender } = this.#transport;
        sender.add(this, queue, 0, queue.length, undefined, this.#segmentsIn);
        sender.flush(this.#fd);
      }
    }
    queue.length = 0;
  }

  /** Datagrams of the endpoint are there, or an ICMP message. */
  ready(): void {
    if (this.#state !== 'open') return;
    const count = this.#transport.answers.take(this, this.#fd, this.#atOnce());
    if (count >= 0) {
      this.#singles = count > 1 ? 0 : this.#singles + 1;
      this.#host.touch(this);
      if (this.datagramsOut === 0) this.owner.balancer.connected(this.endpoint);
    } else if (count !== -EAGAIN) {
      this.owner.counters.datagramsDropped += 1;
      this.#host.failed(this, systemError(-count, 'read'));
    }
  }

  failed(): void {
    this.front.end(this);
  }

  /** Adds the endpoint's datagrams in these slots to what is sent to the client. */
  addAnswers(sender: Sender, slots: readonly number[], from: number, end: number): void {
    sender.add(this, slots, from, end, this.#recipient, this.#segmentsOut);
  }

  sent(way: Way, datagrams: number, bytes: number): void {
    const { counters } = this.owner;
    if (way === 'request') {
      counters.datagramsIn += datagrams;
      counters.bytesIn += bytes;
      this.datagramsIn += datagrams;
    } else {
      counters.datagramsOut += datagrams;
      counters.bytesOut += bytes;
      this.datagramsOut += datagrams;
    }
  }

  notSent(way: Way, datagrams: number, errno: number): boolean {
    if (isFull(errno)) {
      for (let count = 0; count < datagrams; count += 1) this.#host.queueFull(this);
      return true;
    }
    this.owner.counters.datagramsDropped += datagrams;
    if (way === 'answer') return true;
    if (!this.hasEnded) this.#host.failed(this, systemError(errno, 'write'));
    return !this.hasEnded;
  }

  noSegments(way: Way): void {
    if (way === 'request') this.#segmentsIn = false;
    else this.#segmentsOut = false;
  }

  end(): number {
    if (this.#state === 'open') this.#transport.loop.close(this.#fd);
    if (this.#state !== 'ended') this.#transport.names.release(this.#recipient.name);
    this.#state = 'ended';
    this.#fd = -1;
    return 0;
  }

  /** Answers to take. Where one was left by the last turn, or came right after it, there are more. */
  #atOnce(): number {
    const { turns } = this.#transport.loop;
    const isNext = turns === this.#answeredIn + 1;
    this.#answeredIn = turns;
    return isNext || this.#singles < SINGLE_ONES ? AT_ONCE : 1;
  }

  #sendOne(slot: number): void {
    const sent = this.#transport.requests.write(this.#fd, slot);
    if (sent < 0) this.notSent('request', 1, -sent);
    else this.sent('request', 1, sent);
  }
}
