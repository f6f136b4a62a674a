import type { Deadline, DeadlineQueue } from '../core/timers.ts';
import type { TcpRelay } from './transport.ts';

/** The half-close time, as a number of checks. */
export const HALF_CLOSE_LOOKS = 8;

/** Where watches wait for their next check; replaced when the limit changes. */
interface HalfCloseQueue {
  readonly halfClosed: DeadlineQueue<HalfCloseWatch>;
}

/**
 * Resets a half-closed relay in which no bytes move any more: checks at intervals whether bytes were passed on, or a
 * slow peer reads what the system has yet to send.
 *
 * Counting checks instead of measuring time leaves out the time in which the event loop was blocked, which is not
 * the peer's fault. A new limit applies from the next check on.
 */
export class HalfCloseWatch {
  readonly #times: HalfCloseQueue;
  readonly #relay: TcpRelay;
  #next: Deadline<HalfCloseWatch>;
  /** Consecutive checks that found nothing moved. */
  #idleLooks = 0;
  /** Bytes passed on, both ways, at the last check. */
  #bytes: number;
  /** Unsent bytes at the last check; undefined while bytes were passed on. */
  #unsent: number | undefined;

  constructor(times: HalfCloseQueue, relay: TcpRelay) {
    this.#times = times;
    this.#relay = relay;
    this.#bytes = relay.bytesIn + relay.bytesOut;
    this.#next = times.halfClosed.add(this);
  }

  /** The relay has ended. */
  end(): void {
    this.#next.remove();
  }

  look(): void {
    this.#idleLooks = this.#moves() ? 0 : this.#idleLooks + 1;
    if (this.#idleLooks < HALF_CLOSE_LOOKS) this.#next = this.#times.halfClosed.add(this);
    else this.#relay.reset('half-close-timeout');
  }

  /** Reads unsent bytes only when no byte was passed on: that costs two system calls. */
  #moves(): boolean {
    const { bytesIn, bytesOut } = this.#relay;
    const bytes = bytesIn + bytesOut;
    const before = this.#unsent;
    const isPassing = bytes !== this.#bytes;
    this.#bytes = bytes;
    this.#unsent = isPassing ? undefined : this.#relay.unsent();
    return isPassing || (before !== undefined && Number(this.#unsent) < before);
  }
}
