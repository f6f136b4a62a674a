import type { Loop, TurnEnd } from '../loop.ts';
import type { DatagramSlots } from '../sys/datagram-slots.ts';
import { Sender } from './outgoing.ts';
import type { LinuxUdpSession } from './session.ts';

/** Answers of one turn that are kept until its end, at most. */
const SLOTS = 64;
/** Every slot, in order. */
const IN_ORDER: readonly number[] = Array.from({ length: SLOTS }, (_, index) => index);

/**
 * Collects the answers of all endpoints during a turn, so that those which leave through one listening
 * socket leave together. With many clients that have one datagram each in flight, this is what
 * halves the cost.
 */
export class Answers implements TurnEnd {
  readonly #slots: DatagramSlots;
  readonly #sender: Sender;
  /** Whose answer a slot holds. */
  readonly #sessions: LinuxUdpSession[] = [];

  constructor(loop: Loop) {
    this.#slots = loop.sys.datagramSlots(SLOTS);
    this.#sender = new Sender(loop.sys, 'answer', this.#slots);
    loop.atTurnEnd(this);
  }

  /** Takes up to `most` datagrams from the session's socket: how many, or a negative error number. */
  take(session: LinuxUdpSession, fd: number, most: number): number {
    if (this.#sessions.length + most > SLOTS) this.endTurn();
    const first = this.#sessions.length;
    const count = most === 1 ? this.#slots.read(fd, first) : this.#slots.receive(fd, first, most);
    for (let index = 0; index < count; index += 1) this.#sessions.push(session);
    return count;
  }

  /** Sends what there is. */
  endTurn(): void {
    const sessions = this.#sessions;
    let front = sessions[0]?.front;
    if (front === undefined) return;
    for (let start = 0; start < sessions.length;) {
      const session = sessions[start];
      if (session === undefined) break;
      let end = start + 1;
      while (end < sessions.length && sessions[end] === session) end += 1;
      if (session.front !== front) {
        this.#sender.flush(front.fd);
        front = session.front;
      }
      // One that has ended in this turn has no client to answer any more.
      if (!session.hasEnded) session.addAnswers(this.#sender, IN_ORDER, start, end);
      start = end;
    }
    this.#sender.flush(front.fd);
    sessions.length = 0;
  }
}
