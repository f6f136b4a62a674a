import type { BalancerEndpoint } from '../../roundrobin/types.ts';
import { LinkedList, type ListNode } from '../../util/linked-list.ts';

/** A connection or session in the index. */
export interface IndexEntry {
  remove(): void;
}

/** Finds the connections or sessions of an endpoint. Adding and removing take the same time however many there are. */
export class EndpointIndex<T> {
  readonly #all = new LinkedList<T>();
  /** Weak, so that it need not be found out when the last connection of an endpoint has ended. */
  readonly #byEndpoint = new WeakMap<BalancerEndpoint, LinkedList<T>>();

  add(endpoint: BalancerEndpoint, item: T): IndexEntry {
    let list = this.#byEndpoint.get(endpoint);
    if (list === undefined) {
      list = new LinkedList();
      this.#byEndpoint.set(endpoint, list);
    }
    return new Entry(this.#all.add(item), list.add(item));
  }

  /** The current endpoints; changes during the iteration do no harm. */
  of(endpoint: BalancerEndpoint): readonly T[] {
    return [...(this.#byEndpoint.get(endpoint) ?? [])];
  }

  /** How many connections of an endpoint there are. */
  countOf(endpoint: BalancerEndpoint): number {
    return this.#byEndpoint.get(endpoint)?.size ?? 0;
  }

  /** The connections, oldest first. Do not change the index during the iteration. */
  [Symbol.iterator](): Iterator<T> {
    return this.#all[Symbol.iterator]();
  }

  all(): readonly T[] {
    return [...this.#all];
  }
}

class Entry<T> implements IndexEntry {
  readonly #inAll: ListNode<T>;
  readonly #inEndpoint: ListNode<T>;

  constructor(inAll: ListNode<T>, inEndpoint: ListNode<T>) {
    this.#inAll = inAll;
    this.#inEndpoint = inEndpoint;
  }

  remove(): void {
    this.#inAll.remove();
    this.#inEndpoint.remove();
  }
}
