import { LinkedList, type ListNode } from '../util/linked-list.ts';
import type { Member } from './endpoint.ts';

export interface AffinityLimit {
  readonly maxClients: number;
  readonly signal?: {
    /** A client was evicted because there are too many. */
    refused(): void;
    /** A client was forgotten; so many are left. */
    freed(left: number): void;
  };
}

interface AffinityRecord {
  readonly table: AffinityTable;
  readonly client: string;
  target: Member;
  usedAt: number;
  inTable: ListNode<AffinityRecord> | undefined;
  inBudget: ListNode<AffinityRecord> | undefined;
}

/** Maximum number of clients of several affinity tables; above that, the least recently used one is evicted. */
export class AffinityBudget {
  readonly #limit: AffinityLimit;
  readonly #byUse = new LinkedList<AffinityRecord>();

  constructor(limit: AffinityLimit) {
    this.#limit = limit;
  }

  get size(): number {
    return this.#byUse.size;
  }

  /** Adds a client; each use has to move it to the end. */
  join(client: AffinityRecord): ListNode<AffinityRecord> {
    const node = this.#byUse.add(client);
    const oldest = this.#byUse.first?.item;
    if (oldest !== undefined && this.size > this.#limit.maxClients) {
      oldest.table.forget(oldest);
      this.#limit.signal?.refused();
    }
    return node;
  }

  leave(node: ListNode<AffinityRecord> | undefined): void {
    node?.remove();
    this.#limit.signal?.freed(this.size);
  }
}

/** Number of stale records that one new client removes: more than it adds, so the table shrinks. */
const CLEARED_PER_INSERT = 2;

/**
 * Remembers the target of each client. Records are kept in order of last use, so the first is both the next to expire
 * and the next to be evicted. Stale ones are dropped on access, and a few whenever a client is added: there are no
 * timers, and only `clearStale` visits all records.
 */
export class AffinityTable {
  readonly #records = new Map<string, AffinityRecord>();
  readonly #byUse = new LinkedList<AffinityRecord>();
  readonly #budget: AffinityBudget;
  readonly #limit: AffinityLimit;
  /** How long an idle client is remembered. */
  timeoutMs = 0;

  /** `budget`: shared with other tables. */
  constructor(limit: AffinityLimit, budget: AffinityBudget) {
    this.#limit = limit;
    this.#budget = budget;
  }

  /** Number of remembered clients, including stale ones. */
  get size(): number {
    return this.#records.size;
  }

  /** The client's target, which counts as a use; undefined if unknown, expired or gone. */
  use(client: string, now: number): Member | undefined {
    const record = this.#records.get(client);
    if (record === undefined) return undefined;
    if (this.#isStale(record, now)) {
      this.#free(record);
      return undefined;
    }
    this.#touch(record, now);
    return record.target;
  }

  bind(client: string, target: Member, now: number): void {
    const known = this.#records.get(client);
    if (known !== undefined) {
      known.target = target;
      this.#touch(known, now);
      return;
    }
    this.clearStale(now, CLEARED_PER_INSERT);
    const oldest = this.#byUse.first?.item;
    if (this.#records.size >= this.#limit.maxClients && oldest !== undefined) {
      this.forget(oldest);
      this.#limit.signal?.refused();
    }
    const record: AffinityRecord = {
      table: this,
      client,
      target,
      usedAt: now,
      inTable: undefined,
      inBudget: undefined,
    };
    this.#records.set(client, record);
    record.inTable = this.#byUse.add(record);
    record.inBudget = this.#budget.join(record);
  }

  forget(record: AffinityRecord): void {
    this.#records.delete(record.client);
    record.inTable?.remove();
    this.#budget.leave(record.inBudget);
  }

  /** Forgets all clients; call it before dropping the table. */
  clear(): void {
    for (const record of this.#records.values()) this.forget(record);
  }

  /** Drops stale records from the front of the queue, at most `limit` of them. */
  clearStale(now: number, limit = Infinity): void {
    for (let dropped = 0; dropped < limit; dropped += 1) {
      const oldest = this.#byUse.first?.item;
      if (oldest === undefined || !this.#isStale(oldest, now)) return;
      this.#free(oldest);
    }
  }

  /** A record is valid for less than the timeout, the same limit as kube-proxy's. */
  #isStale(record: AffinityRecord, now: number): boolean {
    return record.target.gone || now - record.usedAt >= this.timeoutMs;
  }

  #touch(record: AffinityRecord, now: number): void {
    record.usedAt = now;
    record.inTable?.moveLast();
    record.inBudget?.moveLast();
  }

  #free(record: AffinityRecord): void {
    this.forget(record);
    this.#limit.signal?.freed(this.size);
  }
}
