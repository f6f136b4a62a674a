/**
 * Defers serving until this process is the active one: at once without a previous process; otherwise when it takes
 * over or the previous process has ended.
 */
export class Activation {
  readonly #waiting: ((predecessor: number | undefined) => Promise<void> | void)[] = [];
  #active: { readonly predecessor: number | undefined } | undefined;

  /** An activation without a previous process, active from the start. */
  static immediate(): Activation {
    const activation = new Activation();
    void activation.activate();
    return activation;
  }

  /** Runs `work` on activation, synchronously; at once if already active. It must not reject. */
  onActive(work: (predecessor: number | undefined) => Promise<void> | void): void {
    if (this.#active) void work(this.#active.predecessor);
    else this.#waiting.push(work);
  }

  /**
   * Activates. `predecessor`: the previous process; undefined: none. Resolves when all deferred work is done. Only
   * the first call has an effect.
   */
  async activate(predecessor?: number): Promise<void> {
    if (this.#active) return;
    this.#active = { predecessor };
    await Promise.all(this.#waiting.splice(0).map(async (work) => work(predecessor)));
  }
}
