/** Runs asynchronous jobs one after another, in order of arrival. */
export class SerialQueue {
  #tail: Promise<unknown> = Promise.resolve();
  #waiting = 0;

  get size(): number {
    return this.#waiting;
  }

  /** Settles as the job does. A failed job does not stop those behind it. */
  run<T>(job: () => Promise<T>): Promise<T> {
    this.#waiting += 1;
    const result = this.#tail.then(job).finally(() => {
      this.#waiting -= 1;
    });
    this.#tail = result.catch(() => undefined);
    return result;
  }

  /** Resolves when every job so far has ended. Never rejects. */
  async idle(): Promise<void> {
    await this.#tail;
  }
}
