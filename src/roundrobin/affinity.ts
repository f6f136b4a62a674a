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
  /** In its table's order of last use, and in that of all tables. */
  readonly nodes: ListNode<AffinityRecord>[];
}

/** Clients in order of last use; above the limit, the least recently used one is forgotten. */
export class AffinityBudget {
  readonly #limit: AffinityLimit;
  readonly #byUse = new LinkedList<AffinityRecord>();

  constructor(limit: AffinityLimit) {
    this.#limit = limit;
  }

  get size(): number {
    return this.#byUse.size;
  }

  get oldest(): AffinityRecord | undefined {
    return this.#byUse.first?.item;
  }

  add(record: AffinityRecord): void {
    record.nodes.push(this.#byUse.add(record));
    const { oldest } = this;
    if (oldest === undefined || this.size <= this.#limit.maxClients) return;
    oldest.table.forget(oldest);
    this.#limit.signal?.refused();
  }

  freed(): void {
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
  readonly #own: AffinityBudget;
  readonly #shared: AffinityBudget;
  /** How long an idle client is remembered. */
  timeoutMs = 0;

  /** `shared`: with other tables. */
  constructor(limit: AffinityLimit, shared: AffinityBudget) {
    this.#own = new AffinityBudget(limit);
    this.#shared = shared;
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
      this.forget(record);
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
    const record: AffinityRecord = { table: this, client, target, usedAt: now, nodes: [] };
    this.#records.set(client, record);
    this.#own.add(record);
    this.#shared.add(record);
  }

  forget(record: AffinityRecord): void {
    this.#records.delete(record.client);
    for (const node of record.nodes) node.remove();
    this.#own.freed();
    this.#shared.freed();
  }

  /** Forgets all clients; call it before dropping the table. */
  clear(): void {
    for (const record of this.#records.values()) this.forget(record);
  }

  /** Drops stale records from the front of the queue, at most `limit` of them. */
  clearStale(now: number, limit = Infinity): void {
    for (let dropped = 0; dropped < limit; dropped += 1) {
      const { oldest } = this.#own;
      if (oldest === undefined || !this.#isStale(oldest, now)) return;
      this.forget(oldest);
    }
  }

  /** A record is valid for less than the timeout, the same limit as kube-proxy's. */
  #isStale(record: AffinityRecord, now: number): boolean {
    return record.target.gone || now - record.usedAt >= this.timeoutMs;
  }

  #touch(record: AffinityRecord, now: number): void {
    record.usedAt = now;
    for (const node of record.nodes) node.moveLast();
  }
}
