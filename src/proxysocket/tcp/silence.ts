import type { Deadline, DeadlineQueue } from '../core/deadlines.ts';
import { queuedBytes } from './handle.ts';
import type { RelaySocket } from './relay-socket.ts';

/** A limit is as long as so many looks. */
export const LOOKS = 8;

/**
 * Ends what waits for a peer that takes nothing: looks at intervals whether anything has gone to it,
 * also a large chunk that it takes bit by bit, and calls `tooLong` after so many looks in vain.
 *
 * Counting looks instead of measuring the time leaves out what the event loop was held up for: a
 * peer cannot be blamed for that.
 */
export class Silence {
  readonly #looks: DeadlineQueue<Silence>;
  readonly #peer: RelaySocket;
  readonly #towards: { readonly bytes: number };
  readonly #tooLong: () => void;
  #inVain = 0;
  #bytes: number;
  #queued: number;
  #next: Deadline<Silence>;

  /** `looks` has to call `look`; its time is the limit divided by `LOOKS`. `towards` writes to the peer. */
  constructor(
    looks: DeadlineQueue<Silence>,
    peer: RelaySocket,
    towards: { readonly bytes: number },
    tooLong: () => void,
  ) {
    this.#looks = looks;
    this.#peer = peer;
    this.#towards = towards;
    this.#tooLong = tooLong;
    this.#bytes = towards.bytes;
    this.#queued = queuedBytes(peer);
    this.#next = looks.add(this);
  }

  look(): void {
    const { bytes } = this.#towards;
    const queued = queuedBytes(this.#peer);
    const moved = bytes !== this.#bytes || queued !== this.#queued;
    this.#inVain = moved ? 0 : this.#inVain + 1;
    this.#bytes = bytes;
    this.#queued = queued;
    if (this.#inVain < LOOKS) this.#next = this.#looks.add(this);
    else this.#tooLong();
  }

  stop(): void {
    this.#next.remove();
  }
}
