import type { Loop, TurnEnd } from '../loop.ts';
import type { DatagramSlots } from '../sys/datagram-slots.ts';
import { Sender, type Batch } from './outgoing.ts';
import type { UdpSession } from './session.ts';

/** Answers of one turn that are kept until its end, at most. */
const SLOTS = 64;

/**
 * Collects the answers of all endpoints during a turn, so that those which leave through one listening
 * socket leave together. With many clients that have one datagram each in flight, this is what
 * halves the cost.
 */
export class Answers implements TurnEnd {
  readonly #slots: DatagramSlots;
  readonly #sender: Sender;
  /** Whose answer a slot holds. */
  readonly #sessions: UdpSession[] = [];

  constructor(loop: Loop) {
    this.#slots = loop.sys.datagramSlots(SLOTS);
    this.#sender = new Sender(loop.sys, SLOTS);
    loop.atTurnEnd(this);
  }

  /** Takes one datagram from the session's socket. 1, or a negative error number. */
  take(session: UdpSession, fd: number): number {
    if (this.#sessions.length === SLOTS) this.endTurn();
    const length = this.#slots.read(fd, this.#sessions.length);
    if (length < 0) return length;
    this.#sessions.push(session);
    return 1;
  }

  /** Takes up to `most` datagrams: how many, or a negative error number. */
  takeMany(session: UdpSession, fd: number, most: number): number {
    if (this.#sessions.length + most > SLOTS) this.endTurn();
    const count = this.#slots.receive(fd, this.#sessions.length, most);
    for (let index = 0; index < count; index += 1) this.#sessions.push(session);
    return count;
  }

  /** Sends what there is. */
  endTurn(): void {
    const sessions = this.#sessions;
    if (sessions.length === 0) return;
    let batches: Batch[] = [];
    let front = sessions[0]?.front;
    for (let start = 0; start < sessions.length;) {
      const session = sessions[start];
      if (session === undefined) break;
      let end = start + 1;
      while (end < sessions.length && sessions[end] === session) end += 1;
      if (session.front !== front) {
        this.#send(front?.fd, batches);
        batches = [];
        front = session.front;
      }
      if (!session.hasEnded) batches.push(session.answers(range(start, end)));
      start = end;
    }
    this.#send(front?.fd, batches);
    sessions.length = 0;
  }

  #send(fd: number | undefined, batches: readonly Batch[]): void {
    if (fd !== undefined && batches.length > 0) this.#sender.send(this.#slots, fd, batches);
  }
}

function range(start: number, end: number): number[] {
  const list: number[] = [];
  for (let index = start; index < end; index += 1) list.push(index);
  return list;
}
