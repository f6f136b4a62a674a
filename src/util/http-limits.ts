import { typedChannel } from './channel.ts';

/** Connections to one HTTP server at once. */
export const MAX_HTTP_CONNECTIONS = 64;
/** Pipelined requests of one connection that wait for an earlier response. */
export const MAX_WAITING_REQUESTS = 8;
/** Bytes of a request body; ignored by servers that read none. */
export const MAX_REQUEST_BYTES = 64 * 1024;
/** Response bytes that clients have not read yet, across all HTTP servers of the process. */
export const MAX_RESPONSE_BYTES = 128 * 1024 * 1024;
/** Time from the start of a response until the client has read all of it. */
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
 * Response bytes that clients have not read yet, across several HTTP servers. Above the limit, the response that has
 * made no progress for longest is dropped; a single response may exceed the limit.
 */
export class ResponseBudget {
  readonly #max: number;
  /** The response without progress for longest comes first. */
  readonly #held = new Map<() => void, Held>();
  /** How many clients are being sent the same body. */
  readonly #bodies = new Map<object, number>();
  #total = 0;

  constructor(max = MAX_RESPONSE_BYTES) {
    this.#max = max;
  }

  /** Bytes held now. A body sent to several clients counts once. */
  get total(): number {
    return this.#total;
  }

  /**
   * Sets what a response holds from now on; 0 bytes: nothing. `drop` identifies the response: it must end the
   * response and set it to 0.
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
