/** A page that is being made, or about to be. */
interface Making {
  readonly page: Promise<readonly Uint8Array[]>;
  /** Clients that wait for it. */
  waiting: number;
}

/**
 * A page that is made for one client or for several: only one is made at a time, and clients that ask meanwhile share
 * the next one. So memory and time do not grow with the number of clients, and each gets what was true after it had asked.
 */
export class SharedPage {
  readonly #render: () => AsyncIterable<string>;
  #next: Making | undefined;
  #last: Promise<unknown> = Promise.resolve();

  constructor(render: () => AsyncIterable<string>) {
    this.#render = render;
  }

  /** The page in pieces, which must not be changed. A page that no client waits for any more is not finished. */
  get(signal: AbortSignal): Promise<readonly Uint8Array[]> {
    const making = (this.#next ??= this.#prepare());
    making.waiting += 1;
    signal.addEventListener('abort', () => (making.waiting -= 1), { once: true });
    return making.page;
  }

  #prepare(): Making {
    const { promise, resolve } = Promise.withResolvers<readonly Uint8Array[]>();
    const making: Making = { page: promise, waiting: 0 };
    this.#last = this.#last.then(() => {
      this.#next = undefined;
      const made = this.#make(making);
      resolve(made);
      return made.catch(() => undefined);
    });
    return making;
  }

  async #make(making: Making): Promise<readonly Uint8Array[]> {
    const pieces: Uint8Array[] = [];
    if (making.waiting === 0) return pieces;
    for await (const piece of this.#render()) {
      if (making.waiting === 0) return [];
      pieces.push(Buffer.from(piece));
    }
    return pieces;
  }
}
