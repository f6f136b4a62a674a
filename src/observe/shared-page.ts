/** A page that is being rendered, or about to be. */
interface PendingPage {
  readonly page: Promise<readonly Uint8Array[]>;
  /** Clients that wait for it. */
  waiting: number;
}

/**
 * A page that several clients can share: only one is rendered at a time, and clients that request it meanwhile share
 * the next one. So memory and time do not grow with the number of clients, and no page is older than its request.
 */
export class SharedPage {
  readonly #render: () => AsyncIterable<string | Uint8Array>;
  #next: PendingPage | undefined;
  #last: Promise<unknown> = Promise.resolve();

  constructor(render: () => AsyncIterable<string | Uint8Array>) {
    this.#render = render;
  }

  /** The page in pieces, which must not be changed. Rendering stops when all its clients have disconnected. */
  get(signal: AbortSignal): Promise<readonly Uint8Array[]> {
    const pending = (this.#next ??= this.#prepare());
    pending.waiting += 1;
    signal.addEventListener('abort', () => (pending.waiting -= 1), { once: true });
    return pending.page;
  }

  #prepare(): PendingPage {
    const { promise, resolve } = Promise.withResolvers<readonly Uint8Array[]>();
    const pending: PendingPage = { page: promise, waiting: 0 };
    this.#last = this.#last.then(() => {
      this.#next = undefined;
      const made = this.#make(pending);
      resolve(made);
      return made.catch(() => undefined);
    });
    return pending;
  }

  async #make(pending: PendingPage): Promise<readonly Uint8Array[]> {
    const pieces: Uint8Array[] = [];
    if (pending.waiting === 0) return pieces;
    for await (const piece of this.#render()) {
      if (pending.waiting === 0) return [];
      pieces.push(typeof piece === 'string' ? Buffer.from(piece) : piece);
    }
    return pieces;
  }
}
