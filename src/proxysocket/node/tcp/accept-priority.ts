/** A reader that can yield. */
export interface Yielding {
  endYield(): void;
}

/** A turn of the event loop that relays this many chunks is a long one. */
const LONG_TURN = 64;
/** New clients go first for this many turns; then all waiting connections are served. */
const TURNS = 64;

/**
 * - `free`: turns are not measured.
 * - `noticed`: a client came after much data; the next turn is measured.
 * - `looking`: in that turn.
 * - `given`: clients come first, data waits.
 */
type Phase = 'free' | 'noticed' | 'looking' | 'given';

/**
 * Accepts waiting clients before data is relayed.
 *
 * The event loop accepts one client in each turn, and serves every connection that has data in the same turn. With
 * hundreds of busy connections a turn takes milliseconds, so only a hundred clients a second would be accepted. Therefore,
 * once clients arrive in consecutive long turns, readers pause after one chunk, for 64 turns at most or until no client
 * is waiting. Where turns are short, it costs a few comparisons.
 */
export class AcceptPriority {
  readonly #afterSockets: (callback: () => void) => void;
  readonly #endTurn = (): void => this.#turnEnds();
  #phase: Phase = 'free';
  #waiting: Yielding[] = [];
  #turnsLeft = 0;
  /** Whether a client came in this turn. */
  #accepted = false;
  /** Chunks in this turn; while it is `free`, since the last client. */
  #relayed = 0;

  /** `afterSockets` calls back after the loop's next poll of its sockets. */
  constructor(afterSockets: (callback: () => void) => void = setImmediate) {
    this.#afterSockets = afterSockets;
  }

  accepted(): void {
    this.#accepted = true;
    if (this.#phase !== 'free') return;
    if (this.#relayed >= LONG_TURN) this.#enter('noticed');
    this.#relayed = 0;
  }

  /** A chunk was relayed. Returns whether its reader has to stop until `endYield`. */
  yields(reader: Yielding): boolean {
    this.#relayed += 1;
    if (this.#phase !== 'given') return false;
    this.#waiting.push(reader);
    return true;
  }

  #turnEnds(): void {
    const accepted = this.#accepted;
    const long = this.#relayed >= LONG_TURN;
    this.#accepted = false;
    this.#relayed = 0;
    if (!accepted) this.#free();
    else if (this.#phase === 'noticed') this.#enter('looking');
    else if (this.#phase === 'looking') {
      if (long) this.#give();
      else this.#free();
    } else {
      this.#turnsLeft -= 1;
      if (this.#turnsLeft === 0) this.#give();
      else this.#enter('given');
    }
  }

  /** Checks the end of this turn, or of the next one if this one is ending. */
  #enter(phase: Phase): void {
    this.#phase = phase;
    this.#afterSockets(this.#endTurn);
  }

  #give(): void {
    this.#turnsLeft = TURNS;
    this.#releaseReaders();
    this.#enter('given');
  }

  #free(): void {
    this.#phase = 'free';
    this.#releaseReaders();
  }

  #releaseReaders(): void {
    const waiting = this.#waiting;
    if (waiting.length === 0) return;
    this.#waiting = [];
    for (const reader of waiting) reader.endYield();
  }
}
