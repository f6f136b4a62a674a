/**
 * When a process may serve what another process still serves. Without a previous process that is at once; otherwise
 * when it takes over, or when the other one has gone.
 */
export class Activation {
  #waiting: ((predecessor: number | undefined) => Promise<void> | void)[] = [];
  #isActive = false;
  #predecessor: number | undefined;

  /** A activation that has activate: there is no previous process. */
  static immediate(): Activation {
    const activation = new Activation();
    void activation.activate();
    return activation;
  }

  /** Does some work when the activation comes, within that call; at once if it has activate. It must not reject. */
  onActive(work: (predecessor: number | undefined) => Promise<void> | void): void {
    if (this.#isActive) void work(this.#predecessor);
    else this.#waiting.push(work);
  }

  /**
   * Says that the activation has activate. `predecessor`: the process before this one; undefined: there is none. Resolves when
   * all that waited is done. Only the first call does something.
   */
  async activate(predecessor?: number): Promise<void> {
    if (this.#isActive) return;
    this.#isActive = true;
    this.#predecessor = predecessor;
    const waiting = this.#waiting;
    this.#waiting = [];
    await Promise.all(waiting.map(async (work) => work(predecessor)));
  }
}
