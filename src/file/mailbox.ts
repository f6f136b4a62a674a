/** Holds the newest value until it is taken. */
export class Mailbox<T> {
  #value: T | undefined;
  #wake: (() => void) | undefined;
  #closed = false;

  put(value: T): void {
    this.#value = value;
    this.#wake?.();
  }

  close(): void {
    this.#closed = true;
    this.#wake?.();
  }

  /** Waits for a value and takes it. Undefined once closed. One taker at a time. */
  async take(): Promise<T | undefined> {
    while (!this.#closed && this.#value === undefined) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    const value = this.#closed ? undefined : this.#value;
    this.#value = undefined;
    return value;
  }
}
