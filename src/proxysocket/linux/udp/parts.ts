import type { EngineLimits } from '../../limits.ts';
import type { Loop, TurnEnd } from '../loop.ts';
import { SOL_UDP, UDP_SEGMENT } from '../sys/abi.ts';
import { DatagramSlots } from '../sys/datagrams.ts';
import { Sender } from '../sys/sender.ts';
import type { Sockets } from '../sys/sockets.ts';

/** Datagrams that one call receives from a listening socket, and answers of one turn that are kept until its end. */
const SLOTS = 64;
const IN_ORDER: readonly number[] = Array.from({ length: SLOTS }, (_, index) => index);

/** What the UDP sockets of a thread share. */
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
    this.hasSegments = takesSegments(sys.sockets);
  }
}

/** Sets a segment size of 0, which is the default, and an error where segmentation is not supported. */
function takesSegments(sockets: Sockets): boolean {
  const fd = sockets.datagram(4);
  if (fd < 0) return false;
  const result = sockets.setOption(fd, SOL_UDP, UDP_SEGMENT, 0);
  sockets.close(fd);
  return result === 0;
}

/** A session that gets answers from its endpoint. */
export interface AnsweringSession {
  /** The listening socket that its answers leave through. */
  readonly listenSocket: { readonly fd: number };
  readonly hasEnded: boolean;
  /** Queues the endpoint's datagrams in these slots for the client. */
  addAnswers(sender: Sender, slots: readonly number[], from: number, end: number): void;
}

/**
 * Collects the answers of all endpoints during a turn, so that those of one listening socket are sent
 * together. With many clients that have one datagram each in flight, this halves the cost.
 */
class Answers implements TurnEnd {
  readonly #slots: DatagramSlots;
  readonly #sender: Sender;
  /** The session whose answer is in a slot. */
  readonly #sessions: AnsweringSession[] = [];

  constructor(loop: Loop) {
    this.#slots = new DatagramSlots(loop.sys, SLOTS);
    this.#sender = new Sender(loop.sys, 'answer', this.#slots);
    loop.atTurnEnd(this);
  }

  /** Takes up to `most` datagrams from the session's socket: how many, or a negative error number. */
  receive(session: AnsweringSession, fd: number, most: number): number {
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
      if (!session.hasEnded) session.addAnswers(this.#sender, IN_ORDER, start, end);
      start = end;
    }
    this.#sender.flush(listenSocket.fd);
    sessions.length = 0;
  }
}
