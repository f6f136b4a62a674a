/**
 * When a process may serve what another process still serves. Without a previous process that is at once; otherwise
 * when it takes over, or when the other one has gone.
 */
export class Turn {
  #waiting: ((predecessor: number | undefined) => Promise<void> | void)[] = [];
  #hasCome = false;
  #predecessor: number | undefined;

  /** A turn that has come: there is no previous process. */
  static atOnce(): Turn {
    const turn = new Turn();
    void turn.come();
    return turn;
  }

  /** Does some work when the turn comes, within that call; at once if it has come. It must not reject. */
  whenItComes(work: (predecessor: number | undefined) => Promise<void> | void): void {
    if (this.#hasCome) void work(this.#predecessor);
    else this.#waiting.push(work);
  }

  /**
   * Says that the turn has come. `predecessor`: the process before this one; undefined: there is none. Resolves when
   * all that waited is done. Only the first call does something.
   */
  async come(predecessor?: number): Promise<void> {
    if (this.#hasCome) return;
    this.#hasCome = true;
    this.#predecessor = predecessor;
    const waiting = this.#waiting;
    this.#waiting = [];
    await Promise.all(waiting.map(async (work) => work(predecessor)));
  }
}
