import { Ring, type RingNode } from './ring.ts';

/** A client remembered by a table. */
export interface RememberedClient {
  /** Evicts it from its table, and from the budget. */
  forget(): void;
}

export interface AffinityBudgetOptions {
  /** Maximum number of clients of all tables. At least 1. */
  readonly maxClients: number;
  /** Called when a client is evicted because there are too many. */
  readonly onEvict?: (() => void) | undefined;
  /** Called with the remaining number when a stale client was dropped. */
  readonly onFreed?: ((left: number) => void) | undefined;
}

/** Maximum number of clients of several affinity tables; above that, the least recently used one is evicted. */
export class AffinityBudget {
  readonly #options: AffinityBudgetOptions;
  readonly #byUse = new Ring<RememberedClient>();

  constructor(options: AffinityBudgetOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#byUse.size;
  }

  join(client: RingNode<RememberedClient>): void {
    this.#byUse.join(client);
    if (this.size <= this.#options.maxClients) return;
    this.#byUse.first?.value.forget();
    this.#options.onEvict?.();
  }

  used(client: RingNode<RememberedClient>): void {
    this.#byUse.moveLast(client);
  }

  leave(client: RingNode<RememberedClient>): void {
    this.#byUse.leave(client);
    this.#options.onFreed?.(this.size);
  }
}
