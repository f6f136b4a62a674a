import { Ring, RingNode } from './ring.ts';

/** Something that a client can be bound to until it is gone. */
export interface Bindable {
  readonly gone: boolean;
}

interface AffinityRecord<T> {
  readonly client: string;
  target: T;
  /** When the client was last seen. */
  usedAt: number;
}

export interface AffinityOptions {
  /** How long a client that is not seen is remembered. Milliseconds. */
  readonly timeoutMs: number;
  /** At least 1. */
  readonly maxClients: number;
  /** Called with the address of a client that is forgotten because there are too many. */
  readonly onEvict?: ((client: string) => void) | undefined;
  /** Called with how many clients are left when one was forgotten because its record was stale. */
  readonly onFreed?: ((left: number) => void) | undefined;
}

/** How many stale records one new client clears away: more than it adds, so the table shrinks. */
const CLEARED_PER_INSERT = 2;

/**
 * Remembers which target each client was given.
 *
 * Every use pushes the end of a record back, and the records are kept in order of last use, so the
 * front of the queue is both the first to expire and the first to go when the table is full. Stale
 * records are dropped when they are met, and a few whenever a client is added: there are no timers,
 * and no operation looks at all records but `clearStale`.
 */
export class AffinityTable<T extends Bindable> {
  readonly #records = new Map<string, RingNode<AffinityRecord<T>>>();
  readonly #byUse = new Ring<AffinityRecord<T>>();
  readonly #maxClients: number;
  readonly #onEvict: ((client: string) => void) | undefined;
  readonly #onFreed: ((left: number) => void) | undefined;
  #timeoutMs: number;

  constructor(options: AffinityOptions) {
    this.#timeoutMs = options.timeoutMs;
    this.#maxClients = options.maxClients;
    this.#onEvict = options.onEvict;
    this.#onFreed = options.onFreed;
  }

  /** How many clients are remembered, some of them perhaps no longer validly. */
  get size(): number {
    return this.#records.size;
  }

  /** Counts for the clients known already, too. */
  setTimeout(timeoutMs: number): void {
    this.#timeoutMs = timeoutMs;
  }

  /** What the client is bound to, counting this as a use; undefined if unknown, expired or gone. */
  use(client: string, now: number): T | undefined {
    const node = this.#records.get(client);
    if (node === undefined) return undefined;
    const record = node.value;
    if (this.#isStale(record, now)) {
      this.#free(node);
      return undefined;
    }
    record.usedAt = now;
    this.#byUse.moveLast(node);
    return record.target;
  }

  /** Binds a client, in place of what it was bound to before. */
  bind(client: string, target: T, now: number): void {
    const known = this.#records.get(client);
    if (known !== undefined) {
      known.value.target = target;
      known.value.usedAt = now;
      this.#byUse.moveLast(known);
      return;
    }
    this.clearStale(now, CLEARED_PER_INSERT);
    const oldest = this.#byUse.first;
    if (this.#records.size >= this.#maxClients && oldest !== undefined) {
      this.#drop(oldest);
      this.#onEvict?.(oldest.value.client);
    }
    const node = new RingNode<AffinityRecord<T>>({ client, target, usedAt: now });
    this.#records.set(client, node);
    this.#byUse.join(node);
  }

  /** Drops stale records from the front of the queue, at most `limit` of them. */
  clearStale(now: number, limit = Infinity): void {
    for (let dropped = 0; dropped < limit; dropped += 1) {
      const oldest = this.#byUse.first;
      if (oldest === undefined || !this.#isStale(oldest.value, now)) return;
      this.#free(oldest);
    }
  }

  /** A record lives while less than the timeout has passed; kube-proxy's limit falls on the same instant. */
  #isStale(record: AffinityRecord<T>, now: number): boolean {
    return record.target.gone || now - record.usedAt >= this.#timeoutMs;
  }

  #free(node: RingNode<AffinityRecord<T>>): void {
    this.#drop(node);
    this.#onFreed?.(this.size);
  }

  #drop(node: RingNode<AffinityRecord<T>>): void {
    this.#records.delete(node.value.client);
    this.#byUse.leave(node);
  }
}
