/** Runs asynchronous jobs one after another, in the order in which they came. */
export class SerialQueue {
  #tail: Promise<unknown> = Promise.resolve();
  #waiting = 0;

  /** Jobs that have not ended. */
  get size(): number {
    return this.#waiting;
  }

  /** Resolves or rejects as the job does. A job that fails does not stop those behind it. */
  run<T>(job: () => Promise<T>): Promise<T> {
    this.#waiting += 1;
    const result = this.#tail.then(job).finally(() => {
      this.#waiting -= 1;
    });
    this.#tail = result.catch(() => undefined);
    return result;
  }

  /** Resolves when every job that came so far has ended. Never rejects. */
  async idle(): Promise<void> {
    await this.#tail;
  }
}
