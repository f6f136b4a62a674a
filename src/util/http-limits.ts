import { typedChannel } from './channel.ts';

/** Connections to one HTTP server at once. */
export const MAX_HTTP_CONNECTIONS = 64;
/** Requests of one connection that wait for the answer to an earlier one. */
export const MAX_WAITING_REQUESTS = 8;
/** Bytes of a request body; a server that reads none does not look at it. */
export const MAX_REQUEST_BYTES = 64 * 1024;
/** Bytes of answers that clients have not read yet, of all HTTP servers of the process together. */
export const MAX_RESPONSE_BYTES = 128 * 1024 * 1024;
/** Time from the start of an answer until the client has read all of it. */
export const RESPONSE_TIMEOUT_MS = 60_000;
/** Time for the headers of a request, on a new connection too. */
export const HEADERS_TIMEOUT_MS = 5000;
/** Time for a whole request. */
export const REQUEST_TIMEOUT_MS = 10_000;
/** Time without a byte read or written. */
export const IDLE_TIMEOUT_MS = 30_000;

/** An HTTP connection was closed because a limit was reached. */
export interface HttpLimitReached {
  limit: HttpLimit;
  /** The client, as `ip:port`; empty on the admin socket. */
  remoteAddress: string;
}

export type HttpLimit = 'connections' | 'waiting-requests' | 'answer-bytes' | 'answer-time';

export const httpLimitReached = typedChannel<HttpLimitReached>('http:limit-reached');

/**
 * Bytes of answers that clients have not read yet, of several HTTP servers together. Above the limit the answer that has
 * made no progress for longest is dropped; one answer alone may be larger than the limit.
 */
export class ResponseBudget {
  readonly #max: number;
  /** The answer without progress for longest comes first. */
  readonly #held = new Map<() => void, Held>();
  /** How many clients are sent the same body. */
  readonly #bodies = new Map<object, number>();
  #total = 0;

  constructor(max = MAX_RESPONSE_BYTES) {
    this.#max = max;
  }

  /** Bytes held now. A body that is sent to several clients counts once. */
  get total(): number {
    return this.#total;
  }

  /**
   * Accounts for what an answer holds from now on; 0 bytes: nothing more. `drop` identifies the answer: it must end the
   * answer, and set it to 0.
   */
  set(drop: () => void, bytes: number, body: object = drop): void {
    const before = this.#held.get(drop);
    this.#held.delete(drop);
    if (before !== undefined) this.#count(before, -1);
    if (bytes === 0) return;
    const held = { body, bytes };
    this.#held.set(drop, held);
    this.#count(held, 1);
    for (const dropOldest of this.#held.keys()) {
      if (this.#total <= this.#max || dropOldest === drop) return;
      dropOldest();
    }
  }

  #count({ body, bytes }: Held, change: 1 | -1): void {
    const before = this.#bodies.get(body) ?? 0;
    const now = before + change;
    if (now === 0) this.#bodies.delete(body);
    else this.#bodies.set(body, now);
    if (before === 0) this.#total += bytes;
    else if (now === 0) this.#total -= bytes;
  }
}

interface Held {
  readonly body: object;
  readonly bytes: number;
}
