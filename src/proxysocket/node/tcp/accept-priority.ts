/** A reader that can yield. */
export interface Yielding {
  endYield(): void;
}

/** A turn of the event loop that relays this many chunks is a long one. */
const LONG_TURN = 64;
/** New clients go first for this many turns; then all waiting connections are served. */
const TURNS = 64;

/**
 * Accepts waiting clients before data is relayed.
 *
 * The event loop accepts one client in each turn, and serves every connection that has data in the same turn. With
 * hundreds of busy connections a turn takes milliseconds, so only a hundred clients a second would be accepted. Therefore,
 * once clients arrive in consecutive long turns, readers pause after one chunk, for 64 turns at most or until no client
 * is waiting. Where turns are short, it costs a few comparisons.
 */
export class AcceptPriority {
  readonly #endTurn = (): void => this.#turnEnds();
  #waiting: Yielding[] = [];
  /** Turns are measured: a client came after much data. */
  #isMeasuring = false;
  /** Consecutive turns with a client while turns are measured. Clients go first from the second one on, if that is long. */
  #turns = 0;
  /** Whether a client came in this turn. */
  #accepted = false;
  /** Chunks in this turn; while turns are not measured, since the last client. */
  #relayed = 0;

  accepted(): void {
    this.#accepted = true;
    if (this.#isMeasuring) return;
    this.#isMeasuring = this.#relayed >= LONG_TURN;
    this.#relayed = 0;
    if (this.#isMeasuring) setImmediate(this.#endTurn);
  }

  /** A chunk was relayed. Returns whether its reader has to stop until `endYield`. */
  yields(reader: Yielding): boolean {
    this.#relayed += 1;
    if (this.#turns < 2) return false;
    this.#waiting.push(reader);
    return true;
  }

  #turnEnds(): void {
    const isLong = this.#relayed >= LONG_TURN;
    this.#turns = this.#accepted ? this.#turns + 1 : 0;
    if (this.#turns === 2 && !isLong) this.#turns = 0;
    this.#isMeasuring = this.#turns > 0;
    if (this.#isMeasuring) setImmediate(this.#endTurn);
    this.#accepted = false;
    this.#relayed = 0;
    const isOver = this.#turns === 0 || this.#turns % TURNS === 2;
    if (!isOver || this.#waiting.length === 0) return;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const reader of waiting) reader.endYield();
  }
}
