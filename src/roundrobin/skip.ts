import { LinkedList, type ListNode } from '../util/linked-list.ts';

/** How long an endpoint is skipped after its first, second, ... failure in a row. Milliseconds. */
export const SKIP_MS = [1000, 2000, 4000, 8000, 16_000, 30_000] as const;

interface Skipped<T> {
  readonly value: T;
  readonly until: number;
}

/** Identifies a value in the list, for removal. */
export type SkipTicket<T> = ListNode<Skipped<T>>;

/**
 * The skipped values with their deadlines.
 *
 * All values of one step are skipped for the same time, so a queue per step is ordered by deadline, and a query reads
 * the front of at most six queues.
 */
export class SkipList<T> {
  /** Made when needed: most service ports never have one. */
  readonly #queues: (LinkedList<Skipped<T>> | undefined)[] = [];
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** Adds a value that has failed `failures` times in a row (1 or more). */
  add(value: T, failures: number, now: number): SkipTicket<T> {
    const step = Math.min(failures, SKIP_MS.length) - 1;
    const until = now + (SKIP_MS[step] ?? SKIP_MS[0]);
    this.#size += 1;
    return (this.#queues[step] ??= new LinkedList()).add({ value, until });
  }

  /** Removes a value before its deadline. */
  remove(ticket: SkipTicket<T>): void {
    ticket.remove();
    this.#size -= 1;
  }

  /** Removes one value whose deadline has passed, if any. */
  takeDue(now: number): T | undefined {
    for (const queue of this.#queues) {
      const ticket = queue?.first;
      if (ticket === undefined || ticket.item.until > now) continue;
      this.remove(ticket);
      return ticket.item.value;
    }
    return undefined;
  }
}
